"""
Downloads, kept in a cache: from the Hugging Face Hub in its own, others in that of AllenNLP, where
the package cached_path is installed.
"""

import hashlib
import logging
import os
import sys
from pathlib import Path

import torch

from allennlp_elmo_plugin.files.json_file import shown
from allennlp_elmo_plugin.files.whole import whole_file
from allennlp_elmo_plugin.pretrained.file_names import PATTERNS

logger = logging.getLogger(__name__)

_HUB = "hf://"


def cached_path(address: str) -> str:
    """
    Return the path of a file, which is downloaded if it has an address; of `hf://USER/MODEL`, a
    model on the Hugging Face Hub, that of its folder. Without a connection, what was downloaded
    before is used at once.
    """
    if "://" not in address:
        return address
    try:
        if address.startswith(_HUB):
            return _from_hub(address)
        return _through_cached_path(address) or _through_torch(address)
    except Exception as error:  # of any of the libraries that know how to download
        raise ValueError(
            f"cannot download {address} ({type(error).__name__}: {shown(error, 200)}). Without a "
            "connection, give the path of a file that was downloaded elsewhere"
        ) from None


def _from_hub(address: str) -> str:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ValueError("install it with pip install 'allennlp_elmo_plugin[hub]'") from error
    user, model, *file = address.removeprefix(_HUB).split("/")
    if file:
        return huggingface_hub.hf_hub_download(f"{user}/{model}", "/".join(file))
    return huggingface_hub.snapshot_download(f"{user}/{model}", allow_patterns=[*PATTERNS])


def _through_cached_path(address: str) -> str | None:
    """Do what AllenNLP does, but without its half a minute of attempts without a connection."""
    try:
        import cached_path
        import requests
        from cached_path.util import find_latest_cached
    except ImportError:
        return None
    folder = os.path.join(os.getenv("ALLENNLP_CACHE_ROOT", Path.home() / ".allennlp"), "cache")
    # A program may have chosen another one.
    folder = getattr(sys.modules.get("allennlp.common.file_utils"), "CACHE_DIRECTORY", folder)
    if address.startswith(("http://", "https://")):
        try:
            requests.head(address, timeout=(3.0, 10.0))
        except requests.exceptions.RequestException:
            found = find_latest_cached(address, folder)
            if found is not None:
                logger.warning("No connection: using %s as it was downloaded before", address)
                return str(found)
    return str(cached_path.cached_path(address, cache_dir=folder))


def _through_torch(address: str) -> str:
    if not address.startswith(("http://", "https://")):
        raise ValueError("only http(s) can be read without the package cached_path; install it")
    folder = Path(torch.hub.get_dir(), "allennlp_elmo_plugin")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(address.encode()).hexdigest()
    if not path.exists():
        with whole_file(path, wait=True) as staged:
            torch.hub.download_url_to_file(address, staged)
    return str(path)
