"""
ELMo in PyTorch: pretraining, export and use. Only `plugin/` needs AllenNLP. It is imported when
AllenNLP is, registers our components there, and applies the patches.
"""

import importlib
import importlib.abc
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allennlp_elmo_plugin.bilm.model import BiLm
    from allennlp_elmo_plugin.bilm.options import BiLmOptions
    from allennlp_elmo_plugin.elmo.elmo import Elmo, batch_to_ids
    from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder

__version__ = "0.2.0"
__all__ = ["BiLm", "BiLmOptions", "Elmo", "ElmoEmbedder", "batch_to_ids"]

_PLUGIN = f"{__name__}.plugin"
_MODULES = {
    "BiLm": "bilm.model",
    "BiLmOptions": "bilm.options",
    "Elmo": "elmo.elmo",
    "ElmoEmbedder": "embedding.embedder",
    "batch_to_ids": "elmo.elmo",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return ["__version__", *__all__]


class _Activator(importlib.abc.MetaPathFinder):
    """Imports `plugin/` right after AllenNLP, when that is imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "allennlp":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (each.find_spec(name, path, target) for each in others)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_activate(module: Any) -> None:
                execute(module)
                sys.meta_path.remove(self)
                importlib.import_module(_PLUGIN)

            spec.loader.exec_module = execute_and_activate  # type: ignore[method-assign]
        return spec


if "allennlp" in sys.modules:
    importlib.import_module(_PLUGIN)
else:
    sys.meta_path.insert(0, _Activator())
