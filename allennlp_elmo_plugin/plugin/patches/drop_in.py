"""Our ELMo, and what it needs of AllenNLP's functions, under AllenNLP's names."""

from pathlib import Path
from typing import Any

import torch
from allennlp import commands
from allennlp.commands import train
from allennlp.models import archival
from allennlp.modules import elmo
from allennlp.modules.token_embedders import elmo_token_embedder
from allennlp.nn import util

from allennlp_elmo_plugin.elmo import elmo as our_elmo
from allennlp_elmo_plugin.elmo.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.elmo.elmo_character_encoder import ElmoCharacterEncoder
from allennlp_elmo_plugin.plugin import components
from allennlp_elmo_plugin.plugin.patches import archival as our_archival
from allennlp_elmo_plugin.plugin.registration import replace
from allennlp_elmo_plugin.plugin.training import run_folder, train_command


def apply() -> None:
    """Replace AllenNLP's classes and functions by ours in its modules."""
    commands.__path__.append(str(Path(__file__).with_name("allennlp_commands")))
    why = "this package's ELMo"
    for original, ours in (
        (elmo.Elmo, our_elmo.Elmo),
        (elmo_token_embedder.ElmoTokenEmbedder, components.ElmoTokenEmbedder),
    ):
        _redirect_from_params(original, ours)
        replace(original, ours, why)
    replace(elmo.batch_to_ids, our_elmo.batch_to_ids, why)
    replace(elmo._ElmoBiLm, ElmoBiLm, why)
    replace(elmo._ElmoCharacterEncoder, ElmoCharacterEncoder, why)
    why = "models whose only indexer is `elmo_characters`, such as `basic_classifier`"
    replace(_token_ids, token_ids_from_text_field_tensors, why)
    why = "archives carry their ELMo files, and are written whole or not at all"
    replace(archival.archive_model, our_archival.archive_model, why)
    why = "archives use the ELMo files in them"
    replace(archival._load_model, our_archival.load_model, why)
    why = "exact resume: one process at a time in the folder of a run"
    replace(train.train_model, run_folder.train_model, why)
    why = "language models: results as a table, and how to continue an interrupted run"
    replace(train.train_model_from_file, train_command.train_model_from_file, why)


_token_ids = util.get_token_ids_from_text_field_tensors


def token_ids_from_text_field_tensors(text_field_tensors: Any) -> torch.Tensor:
    """
    Return what AllenNLP's function returns. If there are only ELMo's characters, return 1, the
    unknown word, for each word and 0 for padding. `Hotflip` needs the ids of words: it passes a
    text without a batch, gets its characters, and raises an error that says so.
    """
    try:
        return _token_ids(text_field_tensors)
    except NotImplementedError:
        for tensors in text_field_tensors.values():
            if "elmo_tokens" in tensors:
                ids = tensors["elmo_tokens"]
                return (ids > 0).any(-1).long() if ids.dim() > 2 else ids
        raise


def _redirect_from_params(original: Any, replacement: Any) -> None:
    """Let `original.from_params` make a `replacement`, for arguments annotated with `original`."""
    from_params = original.from_params.__func__

    def redirected(cls: Any, *arguments: Any, **keywords: Any) -> Any:
        if cls is original:
            return replacement.from_params(*arguments, **keywords)
        return from_params(cls, *arguments, **keywords)

    original.from_params = classmethod(redirected)
