"""
Replacing names of AllenNLP, and the list of those that are replaced.

AllenNLP has been imported by the time its plugins are, so a name is replaced in each of its modules
that holds it. Users' own modules stay as they are, and no installed file changes.
"""

import sys
from typing import Any, Set

REPLACED: Set[str] = set()
"""Full names of the classes, functions and methods that ours replace."""

_PACKAGES = ("allennlp", "allennlp_models")


def replace(original: Any, replacement: Any) -> None:
    """
    Replace `original` in all modules of AllenNLP imported so far. Doing it twice changes nothing.
    """
    if original is replacement:
        return
    REPLACED.add(_full_name(original))
    for module_name, module in sys.modules.copy().items():
        if module_name.split(".")[0] in _PACKAGES:
            for name, value in vars(module).copy().items():
                if value is original:
                    setattr(module, name, replacement)


def replace_attribute(owner: Any, name: str, replacement: Any) -> None:
    """
    Replace a method of a class, or a function of one module.
    """
    REPLACED.add(f"{_full_name(owner)}.{name}")
    setattr(owner, name, replacement)


def _full_name(value: Any) -> str:
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return value.__name__  # a module
