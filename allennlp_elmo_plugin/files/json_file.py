"""Read untrusted JSON files; write JSON that people can read."""

import json
import math
import os
from pathlib import Path
from typing import Any

MAX_BYTES = 4 * 2**20
"""The largest file that is read; a model's options take less than 2 KB."""


def read_json_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read one JSON object, in which no key is there twice and all numbers are finite."""
    if os.path.getsize(path) > MAX_BYTES or not os.path.isfile(path):
        raise ValueError(f"{path}: not a JSON file of at most {MAX_BYTES:,} bytes")
    try:
        values = json.loads(
            Path(path).read_text("utf-8-sig"),
            object_pairs_hook=_object,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a JSON file of options ({error})") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: the options must be a JSON object {{...}}")
    return values


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f'the key "{escaped(key)}" is there twice; remove one')
        values[key] = value
    return values


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{escaped(text)} is not a finite number; write null for none")
    return float(text)


def to_json(value: Any) -> str:
    """Return JSON with letters as they are, except what UTF-8 can't express."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def escaped(text: object, length: int = 60) -> str:
    """Return text of an untrusted file for an error, escaped and cut to `length` characters."""
    quoted = json.dumps(str(text))[1:-1]
    return quoted if len(quoted) <= length else f"{quoted[:length]}..."
