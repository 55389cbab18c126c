"""
Our classes and functions under AllenNLP's names: registered under them, or put in their place.

AllenNLP was imported before its plugins, so a name is replaced in each of its modules that contain
it. Users' own modules stay as they are, and no installed file changes.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError

T = TypeVar("T")

REPLACED: dict[str, str] = {}
"""The full names of the classes, functions and methods that ours replace, and why."""


def override_registered(
    base: Any, name: str, constructor: str | None = None
) -> Callable[[type[T]], type[T]]:
    """Return `base.register` for a name that AllenNLP has registered; `exist_ok` would log."""
    Registrable._registry[base].pop(name, None)
    return base.register(name, constructor=constructor)


def replace(original: Any, replacement: Any, why: str) -> None:
    """Replace a class or function in all modules of AllenNLP that are imported."""
    REPLACED[f"{original.__module__}.{original.__qualname__}"] = why
    for module_name, module in sys.modules.copy().items():
        if module_name.split(".")[0] in ("allennlp", "allennlp_models"):
            for name, value in vars(module).copy().items():
                if value is original:
                    setattr(module, name, replacement)


def replace_attribute(owner: Any, name: str, replacement: Any, why: str) -> None:
    """Replace a method of a class, or a function of one module."""
    module = f"{owner.__module__}." if isinstance(owner, type) else ""
    REPLACED[f"{module}{getattr(owner, '__qualname__', owner.__name__)}.{name}"] = why
    setattr(owner, name, replacement)


@contextmanager
def configuration_errors(kinds: tuple[type[Exception], ...] = (ValueError,)) -> Iterator[None]:
    """In the `with` block, raise errors of these kinds as AllenNLP's `ConfigurationError`."""
    try:
        yield
    except kinds as error:
        raise ConfigurationError(str(error)) from error
