"""
Replacing names of AllenNLP, and the list of those that are replaced.

AllenNLP has been imported by the time its plugins are, so a name is replaced in each of its modules
that holds it. Users' own modules stay as they are, and no installed file changes.
"""

import sys
from typing import Any, Dict

REPLACED: Dict[str, str] = {}
"""Full names of the classes, functions and methods that ours replace, and why."""

_PACKAGES = ("allennlp", "allennlp_models")


def table() -> str:
    """Return the list in docs/migration.md."""
    return "\n".join(f"| `{name}` | {why} |" for name, why in sorted(REPLACED.items()))


def replace(original: Any, replacement: Any, why: str) -> None:
    """
    Replace `original` in all modules of AllenNLP imported so far. Doing it twice changes nothing.
    """
    if original is replacement:
        return
    REPLACED[_full_name(original)] = why
    for module_name, module in sys.modules.copy().items():
        if module_name.split(".")[0] in _PACKAGES:
            for name, value in vars(module).copy().items():
                if value is original:
                    setattr(module, name, replacement)


def replace_attribute(owner: Any, name: str, replacement: Any, why: str) -> None:
    """
    Replace a method of a class, or a function of one module.
    """
    REPLACED[f"{_full_name(owner)}.{name}"] = why
    setattr(owner, name, replacement)


def _full_name(value: Any) -> str:
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return value.__name__  # a module
