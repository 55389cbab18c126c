"""AllenNLP's own ELMo, whose names the plugin has given to ours: the oracle of the tests."""

import importlib.util

import allennlp.modules.elmo
from allennlp.data.token_indexers import elmo_indexer  # noqa: F401
from allennlp.modules.token_embedders import TokenEmbedder, elmo_token_embedder


def load_again(module):
    """Return a second copy of a module, from the installed file."""
    name = "original_" + module.__name__.replace(".", "_")
    spec = importlib.util.spec_from_file_location(name, module.__file__)
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


elmo = load_again(allennlp.modules.elmo)

_registry = TokenEmbedder._registry[TokenEmbedder]
_registered = _registry.pop("elmo_token_embedder")
_module = load_again(elmo_token_embedder)
_module.Elmo = elmo.Elmo
ElmoTokenEmbedder = _module.ElmoTokenEmbedder
_registry["elmo_token_embedder"] = _registered
