"""Our classes under names that AllenNLP has registered."""

from typing import Any, Callable, Optional, Type, TypeVar

from allennlp.common import Registrable

T = TypeVar("T")


def register_anew(
    base: Any, name: str, constructor: Optional[str] = None
) -> Callable[[Type[T]], Type[T]]:
    """
    Register a class in the place of the one that has the name. AllenNLP's own way, `exist_ok=True`,
    logs a message in each program that imports the class.

    # Parameters

    base : `Type[Registrable]`
        What the class is one of, such as `TokenEmbedder`.
    name, constructor : `str`
        As those of `Registrable.register`.

    # Returns

    `Callable[[Type[T]], Type[T]]`
        A decorator.
    """

    def register(subclass: Type[T]) -> Type[T]:
        Registrable._registry[base].pop(name, None)
        return base.register(name, constructor=constructor)(subclass)

    return register
