"""Registering our classes under names that AllenNLP has registered for its own."""

from collections.abc import Callable
from typing import Any, TypeVar

from allennlp.common import Registrable

T = TypeVar("T")


def override_registered(
    base: Any, name: str, constructor: str | None = None
) -> Callable[[type[T]], type[T]]:
    """Return the decorator `base.register` for a name that AllenNLP has; `exist_ok` would log."""
    Registrable._registry[base].pop(name, None)
    return base.register(name, constructor=constructor)
