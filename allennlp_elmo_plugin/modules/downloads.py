"""Downloads to AllenNLP's cache, which use what is there at once where there is no connection."""

import logging

from allennlp_elmo_plugin.files.json_file import shown

logger = logging.getLogger(__name__)

_CONNECT_SECONDS, _READ_SECONDS = 3.0, 10.0


def cached_path(address: str) -> str:
    """
    Do what AllenNLP's `cached_path` does, without its half a minute of attempts where there is no
    connection and the file was downloaded before. Raise `ValueError` for what can't be downloaded.
    """
    import requests
    from allennlp.common import file_utils
    from cached_path.util import find_latest_cached

    if address.startswith(("http://", "https://")):
        try:
            requests.head(address, timeout=(_CONNECT_SECONDS, _READ_SECONDS))
        except requests.exceptions.RequestException:
            found = find_latest_cached(address, file_utils.CACHE_DIRECTORY)
            if found is not None:
                logger.warning("No connection: using %s as it was downloaded before", address)
                return str(found)
    try:
        return file_utils.cached_path(address)
    except FileNotFoundError as error:
        raise ValueError(f"there is no {address}") from error
    except Exception as error:  # of any of the libraries that know how to download
        raise ValueError(
            f"cannot download {address}, and it is not in AllenNLP's cache "
            f"({type(error).__name__}: {shown(error, 200)}). Without a connection, give the path "
            "of a file that was downloaded elsewhere"
        ) from None
