"""
Our ELMo under AllenNLP's names, for models such as `bcn` that import the class itself from
`allennlp.modules.elmo`; archives that carry their ELMo files; and `train_model` with a lock on the
folder of its run.
"""

from typing import Any

from allennlp.commands import train
from allennlp.common import logging as allennlp_logging
from allennlp.models import archival
from allennlp.modules import elmo
from allennlp.modules.token_embedders import elmo_token_embedder
from allennlp.training import util as training_util

from allennlp_elmo_plugin.modules import elmo as our_elmo
from allennlp_elmo_plugin.modules import elmo_token_embedder as our_token_embedder
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.modules.elmo_character_encoder import ElmoCharacterEncoder
from allennlp_elmo_plugin.patches import archival as our_archival
from allennlp_elmo_plugin.patches.replaced_names import replace
from allennlp_elmo_plugin.training import (
    console,
    evaluation,
    run_folder,
    train_command,
)


def apply() -> None:
    """
    Replace AllenNLP's classes and functions by ours in its modules. Applying twice changes nothing.
    """
    for original, ours in (
        (elmo.Elmo, our_elmo.Elmo),
        (elmo_token_embedder.ElmoTokenEmbedder, our_token_embedder.ElmoTokenEmbedder),
    ):
        if original is not ours:
            _redirect_from_params(original, ours)
        replace(original, ours)
    replace(elmo.batch_to_ids, our_elmo.batch_to_ids)
    replace(elmo._ElmoBiLm, ElmoBiLm)
    replace(elmo._ElmoCharacterEncoder, ElmoCharacterEncoder)
    replace(archival.archive_model, our_archival.archive_model)
    replace(archival.load_archive, our_archival.load_archive)
    replace(archival._load_model, our_archival.load_model)
    replace(train.train_model, run_folder.train_model)
    replace(train.train_model_from_file, train_command.train_model_from_file)
    replace(allennlp_logging.prepare_global_logging, console.prepare_global_logging)
    console.make_worker_quiet()
    replace(training_util.get_metrics, evaluation.get_metrics)
    replace(training_util.evaluate, evaluation.evaluate)
    replace(training_util.create_serialization_dir, run_folder.create_serialization_dir)


def _redirect_from_params(original: Any, replacement: Any) -> None:
    """
    Let `original.from_params` make a `replacement`, for arguments annotated with `original`: an
    annotation keeps the class that it was written with.
    """
    from_params = original.from_params.__func__

    def redirected(cls: Any, *arguments: Any, **keywords: Any) -> Any:
        return from_params(replacement if cls is original else cls, *arguments, **keywords)

    original.from_params = classmethod(redirected)
