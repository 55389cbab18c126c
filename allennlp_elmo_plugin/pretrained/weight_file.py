"""Read weights.hdf5 in the published layout into a model; write it and softmax.hdf5 from one."""

import math
import os

import torch

from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.files.atomic import LateErrorFile, PathLike, atomic_file
from allennlp_elmo_plugin.pretrained.checkpoints.published_layout import (
    Dataset,
    datasets,
    softmax_datasets,
)
from allennlp_elmo_plugin.pretrained.checkpoints.saved_variables import load, open_weights
from allennlp_elmo_plugin.progress import step_bar

WEIGHT_DTYPES = ("float32", "float16")
"""Types of the numbers that are written. Numbers of any floating-point type are read."""


def read_weights(path: PathLike, model: BiLm) -> None:
    """
    Read a weights.hdf5 in the published layout, which bilm-tf and AllenNLP share, into a biLM of
    the options that belong to it. Nothing changes unless the whole file fits.
    """
    with open_weights(path) as weights:
        load(model, datasets(model.options, model.forget_bias), weights)


def write_weights(path: PathLike, bilm: BiLm, dtype: str = "float32") -> None:
    """
    Write a biLM atomically as weights.hdf5 in the published layout. With `dtype` `"float16"`,
    numbers are rounded, and one that float16 can't express is a `ValueError`.
    """
    _write(path, bilm, list(datasets(bilm.options, bilm.forget_bias)), dtype)


def write_softmax(path: PathLike, softmax: Softmax) -> None:
    """Write the output layer as softmax.hdf5; see `softmax_datasets`."""
    _write(path, softmax, softmax_datasets(*softmax.weight.shape), "float32")


def _write(path: PathLike, model: torch.nn.Module, table: list[Dataset], dtype: str) -> None:
    import h5py

    parameters = model.state_dict()
    n_bytes = sum(4 * math.prod(dataset.shape) for dataset in table)
    with (
        step_bar(f"writing {os.path.basename(path)}", n_bytes) as update,
        atomic_file(path) as staged,
        LateErrorFile(staged) as file,
        h5py.File(file, "w") as weight_file,
    ):
        for dataset in table:
            values = dataset.get(parameters)
            if dtype == "float16" and not bool(values.half().isfinite().all()):
                raise ValueError(
                    f"{dataset.name!r} has numbers beyond those of float16 (65,504); write float32"
                )
            weight_file.create_dataset(dataset.name, data=values.numpy(), dtype=dtype)
            update(4 * values.numel())
