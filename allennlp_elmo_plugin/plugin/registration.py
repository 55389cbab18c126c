"""Registering our classes under AllenNLP's names, and our errors as AllenNLP's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError

T = TypeVar("T")


def override_registered(
    base: Any, name: str, constructor: str | None = None
) -> Callable[[type[T]], type[T]]:
    """Return the decorator `base.register` for a name that AllenNLP has; `exist_ok` would log."""
    Registrable._registry[base].pop(name, None)
    return base.register(name, constructor=constructor)


@contextmanager
def configuration_errors() -> Iterator[None]:
    """Raise the mistakes of a user that the storey below finds as `ConfigurationError`s."""
    try:
        yield
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
