"""The HDF5 file of ELMo layers that `allennlp elmo` writes."""

import json
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, Type

from allennlp.common.checks import ConfigurationError

if TYPE_CHECKING:
    import numpy


class LayersFile:
    """
    HDF5 file with one dataset a sentence, written from start to end.

        with LayersFile("layers.hdf5") as file:
            file.add("0", layers)

    Everything goes to a temporary file in the same folder, which takes the final name when the
    `with` block ends well. After an error there is no new file, and an old one is unchanged.

    # Parameters

    path : `str`
        Name of the file.
    overwrite : `bool`, optional (default = `False`)
        Replace an existing file instead of refusing.

    # Raises

    `ConfigurationError`
        When the file exists and `overwrite` is not set, is a folder, or its folder is missing.
    """

    def __init__(self, path: str, overwrite: bool = False) -> None:
        self._path = os.fspath(path)
        folder = os.path.dirname(os.path.abspath(self._path))
        if not os.path.isdir(folder):
            raise ConfigurationError(
                f"cannot write {self._path}: there is no folder {folder}; create it first"
            )
        if os.path.isdir(self._path):
            raise ConfigurationError(f"cannot write {self._path}: it is a folder, give a file name")
        if os.path.exists(self._path) and not overwrite:
            raise ConfigurationError(
                f"{self._path} exists already; remove it, choose another name, or ask for it to be "
                "replaced (`--force`, or `overwrite=True` in Python)"
            )
        self._temporary_path = f"{self._path}.{os.getpid()}.tmp"
        self._file: Any = None

    def __enter__(self) -> "LayersFile":
        import h5py

        self._file = h5py.File(self._temporary_path, "w")
        return self

    def __exit__(
        self,
        error_type: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            self._file.close()
            if error_type is None:
                os.replace(self._temporary_path, self._path)
        finally:
            if os.path.exists(self._temporary_path):
                os.remove(self._temporary_path)

    def __contains__(self, key: str) -> bool:
        return key in self._file

    def add(self, key: str, layers: "numpy.ndarray[Any, Any]") -> None:
        """
        Add the layers of one sentence as a float32 dataset.

        # Parameters

        key : `str`
            Name of the dataset: not yet used, not empty, and without a slash.
        layers : `numpy.ndarray`
            Shape `(layers, tokens, dim)` or `(tokens, dim)`.
        """
        self._file.create_dataset(key, data=layers, dtype="float32")

    def add_json(self, key: str, value: Any) -> None:
        """Add a value as a dataset of shape `(1,)` that holds its JSON text."""
        import h5py

        dataset = self._file.create_dataset(key, (1,), dtype=h5py.special_dtype(vlen=str))
        dataset[0] = json.dumps(value)
