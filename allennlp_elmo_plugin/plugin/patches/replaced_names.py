"""
Replacing names of AllenNLP, and the list of those that are replaced.

AllenNLP has been imported by the time its plugins are, so a name is replaced in each of its modules
that holds it. Users' own modules stay as they are, and no installed file changes.
"""

import sys
from typing import Any

REPLACED: dict[str, str] = {}
"""Full names of the classes, functions and methods that ours replace, and why."""


def replace(original: Any, replacement: Any, why: str) -> None:
    """Replace a class or function in all modules of AllenNLP imported so far."""
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
