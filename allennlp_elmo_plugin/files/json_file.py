"""Read JSON files that anybody may have written; write JSON that people can read."""

import json
import math
import os
from pathlib import Path
from typing import Any, Dict, List, Tuple, Union

from allennlp_elmo_plugin.files import BadFile

MAX_BYTES = 4 * 2**20
"""The largest file that is read; a model's options take less than 2 KB."""

_MAX_DIGITS = 19  # of an integer of 64 bits


def read_json_object(path: Union[str, "os.PathLike[str]"]) -> Dict[str, Any]:
    """Read a file that holds one JSON object, or raise `FileNotFoundError` or `BadFile`."""
    source = os.fspath(path)
    size = os.path.getsize(path)
    if not os.path.isfile(path) or size > MAX_BYTES:
        raise BadFile(f"{source}: not a JSON file of at most {MAX_BYTES:,} bytes")
    values = parse_json(Path(path).read_bytes(), source)
    if not isinstance(values, dict):
        raise BadFile(f"{source}: the options must be a JSON object {{...}}")
    return values


def parse_json(text: bytes, source: str) -> Any:
    """Parse JSON strictly: no key twice, only finite numbers, integers of 64 bits."""
    try:
        return json.loads(
            text.decode("utf-8-sig"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{source}: not a JSON file of options ({error})") from None


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    values: Dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f'the key "{shown(key)}" is there twice; remove one')
        values[key] = value
    return values


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{shown(text)} is not a finite number; write null for none")
    return float(text)


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > _MAX_DIGITS:
        raise ValueError(f"{shown(text)} has more than {_MAX_DIGITS} digits")
    return int(text)


def to_json(value: Any) -> str:
    """Return JSON with letters as they are, except what UTF-8 can't express."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shown(text: object, length: int = 60) -> str:
    """Quote text of a file in an error: escaped, at most `length` characters."""
    escaped = json.dumps(str(text))[1:-1]
    return escaped if len(escaped) <= length else f"{escaped[:length]}..."
