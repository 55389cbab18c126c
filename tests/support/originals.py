"""AllenNLP's own ELMo, whose names the plugin has given to ours: the oracle of the tests."""

from types import ModuleType

import allennlp.modules.elmo
from allennlp.data.token_indexers import elmo_indexer  # noqa: F401
from allennlp.modules.token_embedders import TokenEmbedder, elmo_token_embedder

from tests.support.module_files import load_module


def _load_again(module: ModuleType) -> ModuleType:
    """A second copy of a module, from the installed file."""
    assert module.__file__ is not None
    return load_module(module.__file__, "original_" + module.__name__.replace(".", "_"))


elmo = _load_again(allennlp.modules.elmo)

_registry = TokenEmbedder._registry[TokenEmbedder]
_registered = _registry.pop("elmo_token_embedder")
_module = _load_again(elmo_token_embedder)
_module.Elmo = elmo.Elmo  # type: ignore[attr-defined]
ElmoTokenEmbedder = _module.ElmoTokenEmbedder
_registry["elmo_token_embedder"] = _registered
