"""AllenNLP's own ELMo, whose names the plugin has given to ours: the oracle of the tests."""

import importlib.util

import pytest


def load_again(module):
    """Return a second copy of a module, from the installed file."""
    name = "original_" + module.__name__.replace(".", "_")
    spec = importlib.util.spec_from_file_location(name, module.__file__)
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


class _NotInstalled:
    def __getattr__(self, name):
        return lambda *args, **kwargs: pytest.skip("needs AllenNLP")


if importlib.util.find_spec("allennlp") is None:
    elmo = _NotInstalled()
else:
    import allennlp.modules.elmo
    from allennlp.data.token_indexers import elmo_indexer  # noqa: F401
    from allennlp.modules.token_embedders import TokenEmbedder, elmo_token_embedder

    elmo = load_again(allennlp.modules.elmo)

    _registry = TokenEmbedder._registry[TokenEmbedder]
    _registered = _registry.pop("elmo_token_embedder")
    _module = load_again(elmo_token_embedder)
    _module.Elmo = elmo.Elmo
    ElmoTokenEmbedder = _module.ElmoTokenEmbedder
    _registry["elmo_token_embedder"] = _registered
