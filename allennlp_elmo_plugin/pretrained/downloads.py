"""Download files to the cache of the Hugging Face Hub, or of AllenNLP if that is installed."""

import hashlib
import logging
import os
import re
import sys
from pathlib import Path

import torch

from allennlp_elmo_plugin.files.json_file import escaped
from allennlp_elmo_plugin.pretrained.file_names import PATTERNS

logger = logging.getLogger(__name__)


def is_address(name: str) -> bool:
    """Return whether this is the address of a file or model, not a path such as `C://x`."""
    return re.match(r"[\w+.-]{2,}://", name) is not None


def cached_path(address: str) -> str:
    """
    Return the path of a file, after a download if it has an address. `hf://USER/MODEL`, a model on
    the Hugging Face Hub, is a folder. Without a connection, an earlier download is used at once.
    """
    if not is_address(address):
        return address
    try:
        if address.startswith("hf://"):
            return _from_hub(address)
        return _through_cached_path(address) or _through_torch(address)
    except Exception as error:  # of any of the libraries that download
        raise ValueError(
            f"cannot download {address} ({type(error).__name__}: {escaped(error, 200)}). Without a "
            "connection, give the path of a file that was downloaded elsewhere"
        ) from None


def _from_hub(address: str) -> str:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ValueError("it needs huggingface_hub: pip install huggingface_hub") from error
    user, model, *file = address.removeprefix("hf://").split("/")
    # `hf_hub_download` would try to connect for most of a minute.
    patterns = ["/".join(file)] if file else [*PATTERNS]
    folder = huggingface_hub.snapshot_download(f"{user}/{model}", allow_patterns=patterns)
    path = os.path.join(folder, *file)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{user}/{model} has no file {patterns[0]}")
    return path


def _through_cached_path(address: str) -> str | None:
    """Download as AllenNLP does, but without its half a minute of attempts without a network."""
    try:
        import cached_path
        import requests
        from cached_path.util import find_latest_cached
    except ImportError:
        return None
    folder = os.path.join(os.getenv("ALLENNLP_CACHE_ROOT", Path.home() / ".allennlp"), "cache")
    # A program may have changed it.
    folder = getattr(sys.modules.get("allennlp.common.file_utils"), "CACHE_DIRECTORY", folder)
    if address.startswith(("http://", "https://")):
        try:
            requests.head(address, timeout=(3.0, 10.0))
        except requests.exceptions.RequestException:
            path = find_latest_cached(address, folder)
            if path is not None:
                logger.warning("No connection: using %s as it was downloaded before", address)
                return str(path)
    return str(cached_path.cached_path(address, cache_dir=folder))


def _through_torch(address: str) -> str:
    if not address.startswith(("http://", "https://")):
        raise ValueError("only http(s) is read without cached_path: pip install cached_path")
    folder = Path(torch.hub.get_dir(), "allennlp_elmo_plugin")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(address.encode()).hexdigest()
    if not path.exists():
        torch.hub.download_url_to_file(address, str(path))  # atomically
    return str(path)
