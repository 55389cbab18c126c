"""
Read JSON files that anybody may have written: every fault is a `ValueError` that names the file and
the key, and size and depth are limited. Write JSON that people can read.
"""

import difflib
import json
import math
import os
import re
from pathlib import Path
from typing import Any, Collection, Dict, Iterator, List, Optional, Tuple, Union

MAX_BYTES = 4 * 2**20
"""The largest file that is read; a model's options take less than 2 KB."""

_MAX_DEPTH = 64
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DIGITS = 19  # of an integer of 64 bits


def read_json_object(path: Union[str, "os.PathLike[str]"], source: str = "") -> Dict[str, Any]:
    """
    Read a file that holds one JSON object.

    # Parameters

    path : `str` or `os.PathLike`
    source : `str`, optional (default = `path`)
        The name of the file in errors.

    # Raises

    `FileNotFoundError`, or `ValueError` that names the file and what is wrong with it.
    """
    source = source or os.fspath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"{source}: not a file; give a JSON file")
    if os.path.getsize(path) > MAX_BYTES:
        raise ValueError(
            f"{source}: not a JSON file of options ({os.path.getsize(path):,} bytes; at most "
            f"{MAX_BYTES:,} are read)"
        )
    values = parse_json(Path(path).read_bytes(), source)
    if not isinstance(values, dict):
        raise ValueError(f"{source}: the options must be a JSON object {{...}}")
    return values


def parse_json(text: bytes, source: str) -> Any:
    """
    Parse JSON strictly: no key twice in an object, only finite numbers, integers of 64 bits.

    # Raises

    `ValueError` that names `source`, and the key where there is one.
    """
    try:
        values = json.loads(
            text.decode("utf-8-sig"),
            object_pairs_hook=lambda pairs: _object(pairs, source),
            parse_int=_integer,
        )
    except _NamedError:
        raise
    except RecursionError:
        raise ValueError(_too_deep(source)) from None
    except ValueError as error:  # also of undecodable bytes
        raise ValueError(f"{source}: not a JSON file ({error})") from None
    for depth, place, value in _walk(values):
        if depth > _MAX_DEPTH:
            raise ValueError(_too_deep(source))
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(
                f'{source}: "{place}" is not a finite number (NaN, Infinity or a number too '
                "large); write the number that was meant, or null for none"
            )
    return values


def to_json(value: Any, indent: Optional[int] = 2) -> str:
    """
    Return JSON with letters as they are, for a file in UTF-8. What UTF-8 can't express (a lone
    surrogate, as of a file name in another encoding) is escaped.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shown(text: object, length: int = 60) -> str:
    """
    Return text for an error that quotes a file, or a library's error about the file: with control
    characters escaped, and cut off after `length` characters.
    """
    escaped = json.dumps(str(text))[1:-1]
    return escaped if len(escaped) <= length else f"{escaped[:length]}..."


def did_you_mean(key: str, known: Collection[str]) -> str:
    """
    Return the end of an error about an unknown key: the known one that is like it, if there is one.
    """
    similar = difflib.get_close_matches(key, known, 1)
    return f"; did you mean {similar[0]}?" if similar else ""


class _NamedError(ValueError):
    """
    An error that already names its file.
    """


def _object(pairs: List[Tuple[str, Any]], source: str) -> Dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise _NamedError(f'{source}: the key "{shown(key)}" is there twice; remove one')
            seen.add(key)
    return values


def _integer(digits: str) -> Union[int, float]:
    # With very many digits, `int` is slow.
    value = int(digits) if len(digits) <= _MAX_DIGITS + 1 else math.inf
    return value if -(2**63) <= value < 2**63 else math.inf


def _walk(values: Any) -> Iterator[Tuple[int, str, Any]]:
    """
    Yield all values with their depths and places.
    """
    waiting = [(0, "", values)]
    while waiting:
        depth, place, value = waiting.pop()
        yield depth, place, value
        if isinstance(value, dict):
            start = f"{place}." if place else ""
            waiting += [(depth + 1, f"{start}{shown(key)}", item) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [(depth + 1, place, item) for item in value]


def _too_deep(source: str) -> str:
    return f"{source}: not a JSON file of options (nested more than {_MAX_DEPTH} deep)"
