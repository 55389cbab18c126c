import os
import re
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple, Union

import numpy
import torch

from allennlp_elmo_plugin.bilm.character_encoder import CharacterEncoder
from allennlp_elmo_plugin.bilm.checkpoints.tensorflow_checkpoint import TensorFlowCheckpoint
from allennlp_elmo_plugin.bilm.checkpoints.weights import datasets, shapes_of
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.files.hdf5_file import is_float, open_weight_file, read_floats
from allennlp_elmo_plugin.files.json_file import read_json_object, shown

PathLike = Union[str, "os.PathLike[str]"]

SOFTMAX_WEIGHT, SOFTMAX_BIAS = "softmax/W", "softmax/b"

# An LSTM's variable under any of bilm-tf's names. With one layer there is no `multi_rnn_cell`, and
# forward only no `RNN_0`; its own dump of such models keeps TensorFlow's names in part.
_LSTM_VARIABLE = re.compile(
    r"(?:RNN_(?P<direction>\d+)/)?rnn/"
    r"(?:(?:multi_rnn_cell/cell_|MultiRNNCell/Cell)(?P<layer>\d+)/)?"
    r"(?:lstm_cell|LSTMCell)/(?P<kind>projection/kernel|W_P_0|kernel|W_0|bias|B)",
    re.IGNORECASE,
)
_LSTM_KINDS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
_CHUNK = 2**24


def published_name(name: str) -> str:
    """
    The name in the published layout of a variable of bilm-tf, named as in TensorFlow (without its
    `lm/`) or as in any of the forms that bilm-tf dumps it.
    """
    match = _LSTM_VARIABLE.fullmatch(name)
    if match is None:
        return name
    direction, layer = match["direction"] or 0, match["layer"] or 0
    kind = _LSTM_KINDS.get(match["kind"], match["kind"])
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/{kind}"


class SavedVariables(ABC):
    """
    The variables of a language model that bilm-tf trained, under their names in the published
    layout, whatever they are saved in.

    # Parameters

    source : `str`
        What errors call it.
    shapes : `Dict[str, Tuple[int, ...]]`
        The variables' names and shapes.
    """

    def __init__(self, source: str, shapes: Dict[str, Tuple[int, ...]]) -> None:
        self.source = source
        self.shapes = shapes

    @property
    def n_words(self) -> Optional[int]:
        """
        The words of the tables that are saved; `None` if there are none.
        """
        for name in (SOFTMAX_BIAS, "embedding"):
            if self.shapes.get(name):
                return self.shapes[name][0]
        return None

    @abstractmethod
    def read(self, name: str, out: Optional[numpy.ndarray] = None) -> numpy.ndarray:
        """
        # Parameters

        name : `str`
            One of `shapes`.
        out : `numpy.ndarray`, optional (default = a new array)
            Where to read it to: contiguous, float32, of its shape.
        """

    def accumulators(self) -> Optional["SavedVariables"]:
        """
        # Returns

        `Optional[SavedVariables]`
            The accumulators of Adagrad, each under the name of its variable; `None` if there are
            none.
        """
        return None

    def n_updates(self) -> int:
        """
        How often the variables were updated, as far as is known.
        """
        return 0


class CheckpointVariables(SavedVariables):
    """
    The variables in a TensorFlow checkpoint.

    # Parameters

    checkpoint : `TensorFlowCheckpoint`
        Written by bilm-tf.
    slot : `str`, optional (default = `""`)
        What follows the names of the variables to read: `"/Adagrad"` for the accumulators.
    """

    _ACCUMULATOR = "/Adagrad"

    def __init__(self, checkpoint: TensorFlowCheckpoint, slot: str = "") -> None:
        self._checkpoint = checkpoint
        # Names in the checkpoint by those in the published layout.
        self._names: Dict[str, str] = {}
        for name in checkpoint.names():
            match = re.fullmatch(rf"lm/(.*?)({self._ACCUMULATOR})?", name)
            if match is not None and (match[2] or "") == slot:
                stored = self._names.setdefault(published_name(match[1]), name)
                if stored != name:
                    raise ValueError(_twice(checkpoint.prefix, stored, name))
        shapes = {name: checkpoint.shape(stored) for name, stored in self._names.items()}
        super().__init__(checkpoint.prefix + slot, shapes)

    def read(self, name: str, out: Optional[numpy.ndarray] = None) -> numpy.ndarray:
        return self._checkpoint.read(self._names[name], out)

    def accumulators(self) -> Optional[SavedVariables]:
        slots = CheckpointVariables(self._checkpoint, self._ACCUMULATOR)
        return slots if slots.shapes else None

    def n_updates(self) -> int:
        if "global_step" not in self._checkpoint:
            return 0
        n_updates = self._checkpoint.read("global_step")
        if n_updates.shape or not 0 <= n_updates < 2**63:
            raise ValueError(
                f"{self._checkpoint.prefix}: 'global_step' must be one number, at least 0"
            )
        return int(n_updates)


class Hdf5Variables(SavedVariables):
    """
    The variables in weights.hdf5, and in softmax.hdf5 those of the output layer, which the
    published layout has no place for.

    # Parameters

    weight_file : `str`
        The weights.
    softmax_file : `str`, optional (default = `None`)
        The output layer as `elmo-export` writes it.
    """

    def __init__(self, weight_file: PathLike, softmax_file: Optional[PathLike] = None) -> None:
        super().__init__(os.fspath(weight_file), {})
        self._places: Dict[str, Tuple[PathLike, str]] = {}
        for path in (weight_file, softmax_file):
            if path is not None:
                self._list(path)

    def _list(self, path: PathLike) -> None:
        def visit(stored: str, item: Any) -> None:
            if is_float(item):
                name = published_name(stored)
                if name in self._places:
                    raise ValueError(_twice(os.fspath(path), self._places[name][1], stored))
                self.shapes[name] = item.shape
                self._places[name] = path, stored

        with open_weight_file(path) as file:
            file.visititems(visit)

    def read(self, name: str, out: Optional[numpy.ndarray] = None) -> numpy.ndarray:
        path, stored = self._places[name]
        with open_weight_file(path) as file:
            return read_floats(file[stored], path, out)


def _twice(source: str, name: str, other: str) -> str:
    names = f"'{shown(name, 200)}' and '{shown(other, 200)}'"
    return f"{source}: {names} are two names of one variable; remove one"


def find_variables(folder: Path) -> SavedVariables:
    """
    # Parameters

    folder : `Path`
        With a TensorFlow checkpoint, or with weights.hdf5 and perhaps softmax.hdf5; or the prefix
        of a checkpoint's files. Of a folder that has both, the checkpoint is taken, which holds
        more.

    # Raises

    `FileNotFoundError` or `ValueError` that names the file and what is wrong with it.
    """
    is_folder = folder.is_dir()
    if not is_folder or (folder / "checkpoint").is_file() or any(folder.glob("*.index")):
        return CheckpointVariables(TensorFlowCheckpoint(folder))
    weight_file, softmax_file = folder / "weights.hdf5", folder / "softmax.hdf5"
    if not weight_file.exists():
        raise FileNotFoundError(
            f"{folder}: there is neither a checkpoint of TensorFlow (checkpoint, model.ckpt-*) nor "
            "a weights.hdf5"
        )
    return Hdf5Variables(weight_file, softmax_file if softmax_file.exists() else None)


def read_options(path: Path, variables: SavedVariables) -> Dict[str, Any]:
    """
    Read the options.json of saved variables, and check that they belong together, so that a model
    of them can be made: it takes no more memory than the files' sizes allow.

    # Parameters

    path : `Path`
        The file.
    variables : `SavedVariables`

    # Returns

    `Dict[str, Any]`
        The checked contents, completed by what the variables know.

    # Raises

    `FileNotFoundError` or `ValueError` that names the file and what is wrong with it.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: there is no such file; bilm-tf writes it beside its checkpoints, and it is "
            "published with every weights.hdf5"
        )
    values = complete_options(read_json_object(path), variables.shapes)
    options = BiLmOptions.from_dict(values, source=str(path))
    if variables.n_words not in (None, options.n_tokens_vocab):
        raise ValueError(
            f'{path}: "n_tokens_vocab" is {options.n_tokens_vocab}, but {variables.source} has '
            f"{variables.n_words} words"
        )
    if SOFTMAX_WEIGHT in variables.shapes:
        _check_shape(SOFTMAX_WEIGHT, (variables.n_words or 0, options.projection_dim), variables)
    for name, shape in shapes_of(options):
        _check_shape(name, shape, variables)
    return values


def complete_options(
    values: Mapping[str, Any], shapes: Mapping[str, Tuple[int, ...]]
) -> Dict[str, Any]:
    """
    Adds to options what they don't say, and the variables do.

    # Parameters

    values : `Mapping[str, Any]`
        The contents of an options.json; nothing in them is changed.
    shapes : `Mapping[str, Tuple[int, ...]]`
        Of the variables, in the published layout.

    # Returns

    `Dict[str, Any]`
        The contents with the sizes, the numbers of layers and filters, whether there is a backward
        direction, and whether the softmax is the token embedding.
    """
    completed = dict(values)
    cell = "RNN_0/RNN/MultiRNNCell/Cell{}/LSTMCell/W_0"
    lstm = completed.setdefault("lstm", {})
    kernel = shapes.get(cell.format(0), ())
    if isinstance(lstm, Mapping) and len(kernel) == 2:
        # The kernel has the rows of the input over those of the state.
        sizes = {"dim": kernel[1] // 4, "projection_dim": kernel[0] // 2}
        completed["lstm"] = {**sizes, "n_layers": _count(shapes, cell), **lstm}
    completed.setdefault("bidirectional", any(name.startswith("RNN_1/") for name in shapes))
    for name in ("embedding", SOFTMAX_BIAS):
        if shapes.get(name):
            completed.setdefault("n_tokens_vocab", shapes[name][0])
    if SOFTMAX_BIAS in shapes and SOFTMAX_WEIGHT not in shapes:
        completed.setdefault("share_embedding_softmax", True)
    char_cnn = completed.get("char_cnn")
    if isinstance(char_cnn, Mapping):
        found: Dict[str, Any] = {"n_highway": _count(shapes, "CNN_high_{}/W_carry")}
        if len(shapes.get("char_embed", ())) == 2:
            found["embedding"] = {"dim": shapes["char_embed"][1]}
        convolutions = [
            shapes[f"CNN/W_cnn_{i}"] for i in range(_count(shapes, "CNN/W_cnn_{}"))
        ]  # (1, width, dim, n_filters) each
        if convolutions and all(len(shape) == 4 for shape in convolutions):
            found["filters"] = [[shape[1], shape[3]] for shape in convolutions]
        completed["char_cnn"] = {**found, **char_cnn}
    return completed


def _count(shapes: Mapping[str, Tuple[int, ...]], name: str) -> int:
    number = 0
    while name.format(number) in shapes:
        number += 1
    return number


def fill(bilm: BiLm, softmax: Softmax, variables: SavedVariables) -> None:
    """
    Gives a model the values of saved variables. Large tables are read straight to where the model
    has them, so that there are never two copies of one.

    A softmax of which nothing is saved stays as it is, and so does the bias alone.

    # Parameters

    bilm : `BiLm`
    softmax : `Softmax`
        Its output layer.
    variables : `SavedVariables`
        Nothing is changed unless they are those of the model, in name and shape.

    # Raises

    `ValueError` that names the variable: one is missing, left over or of another shape, or has a
    value that is not finite.
    """
    tables = dict(_tables(bilm, softmax, variables.shapes))
    parts = [dataset for dataset in datasets(bilm) if dataset.name not in tables]
    expected = {name: tuple(table.shape) for name, table in tables.items()}
    expected.update({part.name: part.shape for part in parts})
    _check_shapes(expected, variables)
    for part in parts:
        with numpy.errstate(over="ignore"):  # of float64; checked below
            values = torch.from_numpy(variables.read(part.name).astype("float32", copy=False))
        check_finite(part.name, values, variables.source)
        part.set(values)
    if softmax.weight is getattr(bilm.token_layer, "weight", None):
        _check_tied(tables["embedding"], variables)
    for name, table in tables.items():
        variables.read(name, out=table.numpy())
        check_finite(name, table, variables.source)


def _tables(
    bilm: BiLm, softmax: Softmax, shapes: Mapping[str, Tuple[int, ...]]
) -> Iterator[Tuple[str, torch.Tensor]]:
    """
    The variables of one row a word, which the model has as they are saved.
    """
    if not isinstance(bilm.token_layer, CharacterEncoder):
        yield "embedding", bilm.token_layer.weight.data
        if softmax.weight is bilm.token_layer.weight:
            if SOFTMAX_BIAS in shapes:
                yield SOFTMAX_BIAS, softmax.bias.data
            return
    if SOFTMAX_WEIGHT in shapes or SOFTMAX_BIAS in shapes:
        yield SOFTMAX_WEIGHT, softmax.weight.data
        yield SOFTMAX_BIAS, softmax.bias.data


def _check_shapes(expected: Mapping[str, Tuple[int, ...]], variables: SavedVariables) -> None:
    for name, shape in expected.items():
        _check_shape(name, shape, variables)
    left_over = sorted(set(variables.shapes) - set(expected) - {SOFTMAX_WEIGHT})
    if left_over:
        raise ValueError(
            f"{variables.source}: the options say nothing of the variable "
            f"'{shown(left_over[0], 200)}' ({len(left_over)} such); are they those of this model?"
        )


def _check_shape(name: str, shape: Tuple[int, ...], variables: SavedVariables) -> None:
    if name not in variables.shapes:
        raise ValueError(
            f"{variables.source}: there is no variable {name!r}, which the options ask for; "
            "are they those of this model?"
        )
    if variables.shapes[name] != shape:
        raise ValueError(
            f"{variables.source}: the variable {name!r} has shape {variables.shapes[name]}, "
            f"but the options ask for {shape}; are they those of this model?"
        )


def _check_tied(table: torch.Tensor, variables: SavedVariables) -> None:
    """
    Checks that a softmax that is saved beside the token embedding is the same.
    """
    if SOFTMAX_WEIGHT not in variables.shapes:
        return
    names = (SOFTMAX_WEIGHT, "embedding")
    if variables.shapes[SOFTMAX_WEIGHT] != variables.shapes["embedding"] or (
        # One after the other to the same place, as there may be no memory for two.
        len({zlib.crc32(variables.read(name, out=table.numpy()).data) for name in names}) > 1
    ):
        raise ValueError(
            f"{variables.source}: {SOFTMAX_WEIGHT!r} is not the token embedding, but the options "
            'say that it is ("share_embedding_softmax")'
        )


def check_finite(name: str, values: torch.Tensor, source: str) -> None:
    """
    # Raises

    `ValueError` that names `source` and the variable, if a value of it is NaN or infinite.
    """
    # In parts, as the intermediate results would be as large as the values.
    if not all(bool(torch.isfinite(part).all()) for part in values.reshape(-1).split(_CHUNK)):
        raise ValueError(
            f"{source}: the variable {name!r} has values not finite (NaN or infinity); get the "
            "file again, or export the model again"
        )
