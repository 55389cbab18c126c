"""The layouts of bilm-tf's files, in which ELMo models are published."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.json_file import read_json_object
from allennlp_elmo_plugin.pretrained import file_names as names
from allennlp_elmo_plugin.pretrained.checkpoints.layout import Layout, ModelFiles
from allennlp_elmo_plugin.pretrained.checkpoints.saved_variables import (
    Weights,
    open_weights,
    options_of_shapes,
    read_options,
)
from allennlp_elmo_plugin.pretrained.checkpoints.tensorflow_checkpoint import find_checkpoint


class BilmTf(Layout):
    """options.json, and weights.hdf5 or a checkpoint of TensorFlow, which also has the softmax."""

    def find(self, folder: Path, for_training: bool) -> tuple[Path, Path] | None:
        if names.is_hub_module(folder):
            return None  # whatever other files are there, such as embedded text
        weights = find_checkpoint(folder) if for_training else None
        if weights is None:
            options = names.find_options_file(folder) or folder / names.OPTIONS_FILE
            weights = names.weights_of(options) or find_checkpoint(folder)
        return None if weights is None else (only_options(folder), weights)

    @contextmanager
    def open(self, files: ModelFiles) -> Iterator[tuple[BiLmOptions, Weights]]:
        with open_weights(files.weights, files.softmax) as weights:
            values = read_json_object(files.options)
            yield read_options(values, str(files.options), weights), weights


class HubModule(BilmTf):
    """A module of TensorFlow Hub: a checkpoint without options, which its shapes tell."""

    def find(self, folder: Path, for_training: bool) -> tuple[Path, Path] | None:
        weights = folder / names.HUB_WEIGHTS
        return (weights, weights) if names.is_hub_module(folder) else None

    @contextmanager
    def open(self, files: ModelFiles) -> Iterator[tuple[BiLmOptions, Weights]]:
        with open_weights(files.weights, files.softmax) as weights:
            yield read_options(options_of_shapes(weights), str(files.options), weights), weights


def only_options(folder: Path) -> Path:
    """Return the only options in the folder of weights."""
    options = names.find_options_file(folder)
    if options is None:
        raise FileNotFoundError(
            f"{folder / names.OPTIONS_FILE}: there is no such file; bilm-tf writes it beside its "
            "checkpoints, and it is published with every weights.hdf5"
        )
    return options
