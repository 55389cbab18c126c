"""
Our ELMo under AllenNLP's names. What is registered is replaced by being registered again; but
models such as `bcn` import the class itself, from `allennlp.modules.elmo`. And archives are made
and loaded with their ELMo files, and `train_model` keeps the folder of its run.
"""

import sys
from typing import Any

from allennlp.commands import train
from allennlp.models import archival
from allennlp.modules import elmo
from allennlp.modules.token_embedders import elmo_token_embedder
from allennlp.training import util as training_util

from allennlp_elmo_plugin.models import archival as our_archival
from allennlp_elmo_plugin.modules import elmo as our_elmo
from allennlp_elmo_plugin.modules.token_embedders import elmo_token_embedder as our_token_embedder
from allennlp_elmo_plugin.training import run_folder

_ELMO_NAMES = ("Elmo", "batch_to_ids", "_ElmoBiLm", "_ElmoCharacterEncoder")


def apply() -> None:
    """
    Puts our classes in the place of AllenNLP's in every module that has them by name, the user's
    own too. Applying twice changes nothing.
    """
    originals = {id(getattr(elmo, name)): getattr(our_elmo, name) for name in _ELMO_NAMES}
    originals[id(elmo_token_embedder.ElmoTokenEmbedder)] = our_token_embedder.ElmoTokenEmbedder
    originals[id(archival.archive_model)] = our_archival.archive_model
    originals[id(archival.load_archive)] = our_archival.load_archive
    originals[id(archival._load_model)] = our_archival.load_model
    originals[id(train.train_model)] = run_folder.train_model
    originals[id(training_util.create_serialization_dir)] = run_folder.create_serialization_dir
    for original, ours in (
        (elmo.Elmo, our_elmo.Elmo),
        (elmo_token_embedder.ElmoTokenEmbedder, our_token_embedder.ElmoTokenEmbedder),
    ):
        if original is not ours:
            _redirect_from_params(original, ours)
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if str(names.get("__name__")).split(".")[0] == __name__.split(".")[0]:
            continue  # ours call the originals
        if originals.keys().isdisjoint(map(id, list(names.values()))):  # fast, and nearly all
            continue
        for name, value in list(names.items()):
            if id(value) in originals:
                setattr(module, name, originals[id(value)])


def _redirect_from_params(original: Any, replacement: Any) -> None:
    """
    Lets `original.from_params` make a `replacement`: the annotation of an argument, which says what
    is made of a part of a config, keeps the class that it was written with.
    """
    from_params = original.from_params.__func__

    def redirected(cls: Any, *arguments: Any, **keywords: Any) -> Any:
        return from_params(replacement if cls is original else cls, *arguments, **keywords)

    original.from_params = classmethod(redirected)
