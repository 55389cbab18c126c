"""The checkpoint of a language model that is trained, before or after its first epoch has ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.json_file import read_json_object
from allennlp_elmo_plugin.files.tensors import read_tensors
from allennlp_elmo_plugin.pretrained import file_names as names
from allennlp_elmo_plugin.pretrained.checkpoints.layout import Layout, ModelFiles
from allennlp_elmo_plugin.pretrained.checkpoints.saved_variables import (
    Weights,
    weights_of_state_dict,
)
from allennlp_elmo_plugin.pretrained.checkpoints.training_run import archived_options


class TrainingCheckpoint(Layout):
    """
    checkpoint.pt with the settings of `elmo-train` or a config. In a folder it counts while there
    is no model of an epoch; after that, by its path.
    """

    ending = names.CHECKPOINT_FILE

    def find(self, folder: Path, for_training: bool) -> tuple[Path, Path] | None:
        if names.first_file(folder, (*names.RUN_WEIGHT_FILES, names.WEIGHT_FILE)) is not None:
            return None
        settings = names.first_file(folder, (names.TRAINING_FILE, names.CONFIG_FILE))
        checkpoint = names.first_file(folder, [names.CHECKPOINT_FILE])
        return (settings, checkpoint) if settings and checkpoint else None

    @contextmanager
    def open(self, files: ModelFiles) -> Iterator[tuple[BiLmOptions, Weights]]:
        tensors = read_tensors(files.weights, "parameters")
        n_words = tensors.get("softmax.bias", torch.empty(0)).numel()
        if files.options.name == names.CONFIG_FILE:
            options = archived_options(files.options.parent, n_words)
        else:
            model = read_json_object(files.options).get("model")
            values = model.get("options") if isinstance(model, dict) else None
            if not isinstance(values, dict):
                raise ValueError(f"{files.options}: has no model.options; is it of elmo-train?")
            options = BiLmOptions.from_dict({**values, "n_tokens_vocab": n_words}, files.source)
        yield options, weights_of_state_dict(str(files.weights), tensors, options)

    def read_training(self, files: ModelFiles) -> tuple[dict[str, Any], dict[str, Any]]:
        return read_json_object(files.options), {}
