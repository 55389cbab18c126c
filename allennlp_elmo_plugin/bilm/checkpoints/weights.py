"""
weights.hdf5 in the published layout, and softmax.hdf5, read to a model and written from one.
"""

import os
from typing import Iterable, Union

import torch

from allennlp_elmo_plugin.bilm.checkpoints.published_layout import (
    Dataset,
    datasets,
    softmax_datasets,
)
from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import Hdf5Variables, load
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.files.whole_file import LateErrorFile, whole_file

PathLike = Union[str, "os.PathLike[str]"]


def read_weights(path: PathLike, model: BiLm) -> None:
    """
    Fills a biLM from a weights.hdf5 in the published layout, which bilm-tf and AllenNLP share.

    # Parameters

    path : `str`
        The HDF5 file.
    model : `BiLm`
        Built from the options that belong to the file. Nothing is changed unless the whole file
        fits.

    # Raises

    `FileNotFoundError`, or `ValueError` that names the file and what is wrong with it: no HDF5 or
    cut off, a dataset missing or of another shape, a value that is not finite.
    """
    with Hdf5Variables(path) as variables:
        variables.check(datasets(model.options))
        load(model, datasets(model.options, model.forget_bias), variables)


def write_weights(path: PathLike, bilm: BiLm) -> None:
    """
    Writes a biLM as weights.hdf5 in the published layout, whole or not at all. bilm-tf and AllenNLP
    read it to the same numbers.

    # Parameters

    path : `str`
        The HDF5 file.
    bilm : `BiLm`
        The model.
    """
    _write(path, bilm, datasets(bilm.options, bilm.forget_bias))


def write_softmax(path: PathLike, softmax: Softmax) -> None:
    """
    Writes the output layer, which weights.hdf5 has no place for: `softmax/W`, shape `(n_words,
    dim)`, and `softmax/b`, shape `(n_words,)`, as bilm-tf's checkpoints name them.

    # Parameters

    path : `str`
        The HDF5 file.
    softmax : `Softmax`
        The output layer.
    """
    _write(path, softmax, softmax_datasets(*softmax.weight.shape))


def _write(path: PathLike, model: torch.nn.Module, table: Iterable[Dataset]) -> None:
    import h5py

    parameters = model.state_dict()
    with (
        whole_file(path) as staged,
        LateErrorFile(staged) as file,
        h5py.File(file, "w") as weight_file,
    ):
        for dataset in table:
            weight_file.create_dataset(dataset.name, data=dataset.get(parameters).numpy())
