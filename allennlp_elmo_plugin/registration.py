"""Registering our classes under names that AllenNLP has registered for its own."""

from typing import Any, Callable, Optional, Type, TypeVar

from allennlp.common import Registrable

T = TypeVar("T")


def override_registered(
    base: Any, name: str, constructor: Optional[str] = None
) -> Callable[[Type[T]], Type[T]]:
    """
    Return a decorator that registers a class with `base`, such as `TokenEmbedder`, in place of the
    one that has the name. `base.register(name, constructor, exist_ok=True)` would log a message in
    each program that imports the class.
    """

    def register(subclass: Type[T]) -> Type[T]:
        Registrable._registry[base].pop(name, None)
        return base.register(name, constructor=constructor)(subclass)

    return register
