"""Downloads to AllenNLP's cache, which use what is there at once where there is no connection."""

import logging

from allennlp_elmo_plugin.files.json_file import shown

logger = logging.getLogger(__name__)


def cached_path(address: str) -> str:
    """
    Do what AllenNLP's `cached_path` does, without its half a minute of attempts where there is no
    connection and the file was downloaded before.
    """
    import requests
    from allennlp.common import file_utils
    from cached_path.util import find_latest_cached

    if address.startswith(("http://", "https://")):
        try:
            requests.head(address, timeout=(3.0, 10.0))
        except requests.exceptions.RequestException:
            found = find_latest_cached(address, file_utils.CACHE_DIRECTORY)
            if found is not None:
                logger.warning("No connection: using %s as it was downloaded before", address)
                return str(found)
    try:
        return file_utils.cached_path(address)
    except Exception as error:  # of any of the libraries that know how to download
        raise ValueError(
            f"cannot download {address} ({type(error).__name__}: {shown(error, 200)}). Without a "
            "connection, give the path of a file that was downloaded elsewhere"
        ) from None
