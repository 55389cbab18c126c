"""
ELMo in PyTorch: pretraining, export and use. Only `plugin/` needs AllenNLP. It is imported when
AllenNLP is, registers our components there, and applies the patches.
"""

# With a _, so that completion shows only public names.
import importlib as _importlib
import importlib.abc as _abc
import sys as _sys
import typing as _typing

if _typing.TYPE_CHECKING:
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


def __getattr__(name: str) -> _typing.Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return ["__version__", *__all__]


class _Activator(_abc.MetaPathFinder):
    """Imports `plugin/` right after AllenNLP, when that is imported."""

    def find_spec(self, name: str, path: _typing.Any, target: _typing.Any = None) -> _typing.Any:
        if name != "allennlp":
            return None
        others = (finder for finder in _sys.meta_path if finder is not self)
        spec = next(filter(None, (each.find_spec(name, path, target) for each in others)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_activate(module: _typing.Any) -> None:
                execute(module)
                _sys.meta_path.remove(self)
                _importlib.import_module(_PLUGIN)

            spec.loader.exec_module = execute_and_activate  # type: ignore[method-assign]
        return spec


if "allennlp" in _sys.modules:
    _importlib.import_module(_PLUGIN)
else:
    _sys.meta_path.insert(0, _Activator())
