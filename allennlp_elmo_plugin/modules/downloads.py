"""Downloads that notice within seconds that there is no connection."""

import io
import logging
from contextlib import redirect_stdout
from typing import Any

import requests
from allennlp.common import file_utils
from cached_path.util import find_latest_cached
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ProxyError
from urllib3.util.retry import Retry

logger = logging.getLogger(__name__)

_NO_CONNECTION = (NewConnectionError, ConnectTimeoutError, ProxyError)

# Three attempts to connect, the last one after 2 seconds. Everything else is left to AllenNLP.
_ATTEMPTS = Retry(total=None, connect=2, read=0, redirect=0, status=0, other=0, backoff_factor=1)
_CONNECT_SECONDS, _READ_SECONDS = 3.0, 10.0


def cached_path(address: str) -> str:
    """
    Do what AllenNLP's `cached_path` does, without its half a minute of attempts where there is no
    connection: then return the file that was downloaded before.

    # Raises

    What AllenNLP's does, and `ConnectionError` that names the address and the reason.
    """
    if address.startswith(("http://", "https://")):
        reason = _why_not_connected(address)
        if reason is not None:
            # Some versions of the package print what they find.
            with redirect_stdout(io.StringIO()):
                found = find_latest_cached(address, file_utils.CACHE_DIRECTORY)
            if found is None:
                raise ConnectionError(f"no connection: {reason}")
            logger.warning("No connection: using %s as it was downloaded before", address)
            return str(found)
    return file_utils.cached_path(address)


def _why_not_connected(address: str) -> Any:
    """Return why the server of an address can't be reached, or `None` if it can."""
    logging.getLogger("urllib3.connectionpool").addFilter(_is_no_attempt)
    try:
        with requests.Session() as session:
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=_ATTEMPTS))
            session.head(address, timeout=(_CONNECT_SECONDS, _READ_SECONDS))
    except requests.exceptions.ConnectionError as error:
        reason = getattr(error.args[0], "reason", None) if error.args else None
        return reason if isinstance(reason, _NO_CONNECTION) else None
    except requests.exceptions.RequestException:
        return None
    finally:
        logging.getLogger("urllib3.connectionpool").removeFilter(_is_no_attempt)
    return None


def _is_no_attempt(record: logging.LogRecord) -> bool:
    """Return whether a record is not a warning that an attempt failed, which our error says."""
    return record.levelno != logging.WARNING
