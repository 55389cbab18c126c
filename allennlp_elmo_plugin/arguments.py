"""Checks of arguments. A `ValueError` names the argument, its value and what it may be."""

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_TYPES: dict[Any, tuple[str, type]] = {
    int: ("a whole number", Integral),
    float: ("a number", Real),
    bool: ("true or false", bool),
    str: ("a string", str),
    NoneType: ("null", NoneType),
}


def check_types(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Check the arguments of a function or class whose annotations are types that JSON has."""
    for name, hint in get_type_hints(function).items():
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if name in arguments and _TYPES.keys() >= {*kinds}:
            value, expected = arguments[name], dict(_TYPES[kind] for kind in kinds)
            is_right = isinstance(value, tuple(expected.values()))
            # In Python, true is 1.
            if not is_right or (isinstance(value, bool) and bool not in kinds):
                raise ValueError(f"{name} is {value!r}; it must be {' or '.join(expected)}")


def check_above_zero(**numbers: float | None) -> None:
    """Check numbers, of which those that are `None` are right."""
    for name, number in numbers.items():
        if number is not None and not 0 < number < math.inf:
            raise ValueError(f"{name} is {number}; it must be above 0")


def check_at_least(least: int, **numbers: float | None) -> None:
    """Check numbers, of which those that are `None` are right."""
    for name, number in numbers.items():
        if number is not None and number < least:
            raise ValueError(f"{name} is {number}; it must be at least {least}")
