"""
The one way to read the weights of language models from any of their files: find them in a folder,
complete and check the options with them, and load them into a model.
"""

import json
import math
import os
import re
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

import numpy
import torch

from allennlp_elmo_plugin.bilm.checkpoints.published_layout import (
    CELL,
    SOFTMAX_BIAS,
    SOFTMAX_WEIGHT,
    Dataset,
    datasets,
    softmax_datasets,
)
from allennlp_elmo_plugin.bilm.checkpoints.tensorflow_checkpoint import TensorFlowCheckpoint
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.files.hdf5_file import (
    float_blocks,
    float_datasets,
    open_weight_file,
)
from allennlp_elmo_plugin.files.json_file import shown
from allennlp_elmo_plugin.files.model_file_names import (
    CONFIG_FILE,
    RUN_WEIGHT_FILE,
    SOFTMAX_FILE,
    WEIGHT_FILE,
    find_archives,
    find_weight_file,
    has_checkpoint,
)
from allennlp_elmo_plugin.files.tensors import read_tensors
from allennlp_elmo_plugin.progress import step_bar

PathLike = Union[str, "os.PathLike[str]"]
Shapes = Mapping[str, Tuple[int, ...]]

# An LSTM's variable under any of bilm-tf's names. With one layer there is no `multi_rnn_cell`, and
# forward only no `RNN_0`; its own dump of such models keeps TensorFlow's names in part.
_LSTM_VARIABLE = re.compile(
    r"(?:RNN_(?P<direction>\d+)/)?rnn/"
    r"(?:(?:multi_rnn_cell/cell_|MultiRNNCell/Cell)(?P<layer>\d+)/)?"
    r"(?:lstm_cell|LSTMCell)/(?P<kind>projection/kernel|W_P_0|kernel|W_0|bias|B)",
    re.IGNORECASE,
)
_LSTM_KINDS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
_HIGHWAY_KINDS = ("W_carry", "b_carry", "W_transform", "b_transform")


def published_name(name: str) -> str:
    """
    Return the name in the published layout of a variable of bilm-tf, from its name in TensorFlow
    (without its `lm/`) or in any dump of bilm-tf.
    """
    match = _LSTM_VARIABLE.fullmatch(name)
    if match is None:
        return name
    direction, layer = match["direction"] or 0, match["layer"] or 0
    kind = _LSTM_KINDS.get(match["kind"], match["kind"])
    return f"{CELL.format(direction, layer)}/{kind}"


class SavedVariables(ExitStack, ABC):
    """
    The variables of a language model, under their names in the published layout, in whatever files
    they are saved. Files stay open until the end of a `with` block. `source` is the name of the
    files in errors, `shapes` has the shapes of the variables by their names.
    """

    # What the names of a biLM's variables begin with.
    _parts: Tuple[str, ...] = ("char_embed", "CNN", "embedding", "RNN_", "rnn/")

    def __init__(self, source: str, shapes: Dict[str, Tuple[int, ...]]) -> None:
        super().__init__()
        self.source = source
        self.shapes = shapes

    @property
    def published_shapes(self) -> Shapes:
        """
        The shapes that determine the options, by their names in the published layout.
        """
        return self.shapes

    @property
    def n_words(self) -> Optional[int]:
        """
        How many words the saved tables of words have; `None` if there are none.
        """
        for name in (SOFTMAX_BIAS, "embedding"):
            if self.shapes.get(name):
                return self.shapes[name][0]
        return None

    @abstractmethod
    def blocks(
        self, name: str, out: Optional[numpy.ndarray] = None
    ) -> Iterator[Tuple[int, numpy.ndarray]]:
        """
        Yield a variable as float32 in blocks of rows, each with the number of its first row. With
        `out`, a float32 array of its shape, read it to there, without a second copy in memory.

        # Raises

        `ValueError` that names the file and the variable; also after the last block.
        """

    def check(self, table: Iterable[Dataset], parts: Tuple[str, ...] = ()) -> None:
        """
        Check that there are the variables that a model needs, and no others whose names begin with
        `parts`, which are by default those of a biLM.

        # Raises

        `ValueError` that names the file and the variable.
        """
        expected = set()
        for name, shape, _ in table:
            expected.add(name)
            if name not in self.shapes:
                raise ValueError(
                    f"{self.source}: the variable {name!r} is missing, or has no floating-point "
                    "numbers; are these the weights that belong to the options?"
                )
            if self.shapes[name] != shape:
                raise ValueError(
                    f"{self.file_of(name)}: the variable {name!r} has shape {self.shapes[name]}, "
                    f"but the options ask for {shape}; are these the weights that belong to them?"
                )
            self._check_stored(name)
        parts = parts or self._parts
        others = [name for name in self.shapes if name not in expected and name.startswith(parts)]
        if others:
            raise ValueError(
                f"{self.file_of(others[0])}: has the variable '{shown(others[0], 200)}' "
                f"({len(others)} such), which a model of these options does not have; are these "
                "the weights that belong to them?"
            )

    def file_of(self, name: str) -> str:
        """
        Return the name of a variable's file in errors.
        """
        return self.source

    def _check_stored(self, name: str) -> None:
        """
        Check that a variable has floating-point numbers and that they exist, without reading them.
        """
        return

    def adagrad_state(self) -> Optional[Tuple["SavedVariables", int]]:
        """
        Return Adagrad's accumulators, under the names of their variables, and the number of updates
        so far (0 if it is not known); `None` if there are no accumulators.
        """
        return None


class CheckpointVariables(SavedVariables):
    """
    The variables in a TensorFlow checkpoint of bilm-tf, or with a `slot` of `"/Adagrad"` their
    accumulators, whose names have this ending.
    """

    _ACCUMULATOR = "/Adagrad"

    def __init__(self, checkpoint: TensorFlowCheckpoint, slot: str = "") -> None:
        self._checkpoint = checkpoint
        # Names in the checkpoint by those in the published layout.
        self._names: Dict[str, str] = {}
        for name in checkpoint.variables:
            match = re.fullmatch(rf"lm/(.*?)({self._ACCUMULATOR})?", name)
            if match is not None and (match[2] or "") == slot:
                stored = self._names.setdefault(published_name(match[1]), name)
                if stored != name:
                    raise ValueError(_twice(checkpoint.prefix, stored, name))
        shapes = {name: checkpoint.variables[each].shape for name, each in self._names.items()}
        super().__init__(checkpoint.prefix + slot, shapes)

    def blocks(
        self, name: str, out: Optional[numpy.ndarray] = None
    ) -> Iterator[Tuple[int, numpy.ndarray]]:
        for start, block in self._checkpoint.blocks(self._names[name]):
            shape = block.shape
            floats = numpy.empty(shape, "float32") if out is None else out[start : start + shape[0]]
            with numpy.errstate(over="ignore"):  # of float64, which `load` finds as infinity
                floats[...] = block
            yield start, floats

    def _check_stored(self, name: str) -> None:
        stored = self._names[name]
        if self._checkpoint.find(stored)[1].kind != "f":
            raise ValueError(f"{self._checkpoint.prefix}: {stored!r} has no floating-point numbers")

    def adagrad_state(self) -> Optional[Tuple[SavedVariables, int]]:
        accumulators = CheckpointVariables(self._checkpoint, self._ACCUMULATOR)
        if not accumulators.shapes:
            return None
        if "global_step" not in self._checkpoint.variables:
            return accumulators, 0
        n_updates = self._checkpoint.read("global_step")
        if n_updates.shape or not 0 <= n_updates < 2**63:
            raise ValueError(f"{self.source}: 'global_step' must be one number, at least 0")
        return accumulators, int(n_updates)


class Hdf5Variables(SavedVariables):
    """
    The variables in weights.hdf5, and in the softmax.hdf5 of `elmo-export` those of the output
    layer, which the published layout has no place for.
    """

    def __init__(self, weight_file: PathLike, softmax_file: Optional[PathLike] = None) -> None:
        super().__init__(os.fspath(weight_file), {})
        # For each variable the path of its file and the dataset.
        self._places: Dict[str, Tuple[str, Any]] = {}
        with ExitStack() as files:
            for path in (weight_file, softmax_file):
                if path is not None:
                    self._list(files.enter_context(open_weight_file(path)), os.fspath(path))
            self.callback(files.pop_all().close)

    def _list(self, file: Any, path: str) -> None:
        for stored, dataset in float_datasets(file):
            name = published_name(stored)
            if name in self._places:
                raise ValueError(_twice(path, self._places[name][1].name[1:], stored))
            self.shapes[name] = dataset.shape
            self._places[name] = path, dataset

    def blocks(
        self, name: str, out: Optional[numpy.ndarray] = None
    ) -> Iterator[Tuple[int, numpy.ndarray]]:
        path, dataset = self._places[name]
        return float_blocks(dataset, path, out)

    def file_of(self, name: str) -> str:
        return self._places[name][0]


class TensorVariables(SavedVariables):
    """
    The parameters in the file `path` of `torch.save`, under their names in the state dict of a
    `bidirectional_lm`.
    """

    _parts = ("",)

    def __init__(self, path: PathLike, source: str) -> None:
        self._tensors = read_tensors(path, source)
        super().__init__(source, {name: tuple(each.shape) for name, each in self._tensors.items()})

    @property
    def published_shapes(self) -> Shapes:
        shapes = {}
        for name, shape in self.shapes.items():
            for pattern, dataset, convert in _PARAMETERS:
                match = re.fullmatch(pattern, name)
                if match is not None:
                    with suppress(TypeError):  # of another number of dimensions
                        shapes[dataset.format(*match.groups())] = convert(*shape)
        return shapes

    def check_size(self, table: Iterable[Dataset]) -> None:
        """
        Check that the file has as many numbers as `table`, before there is memory for a model.
        """
        storages = {
            each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() // each.itemsize
            for each in self._tensors.values()
        }
        n_numbers = sum(storages.values())
        if any(total > n_numbers for total in accumulate(math.prod(d.shape) for d in table)):
            raise ValueError(
                f"{self.source}: has {n_numbers:,} numbers, fewer than the options ask for; are "
                "these the weights of this model?"
            )

    def blocks(
        self, name: str, out: Optional[numpy.ndarray] = None
    ) -> Iterator[Tuple[int, numpy.ndarray]]:
        values = self._tensors[name].float().numpy()
        if out is not None:
            numpy.copyto(out, values)
        yield 0, values


class PublishedTensors(SavedVariables):
    """
    The parameters of the biLM in a file of `torch.save`, under the names and in the shapes of the
    published layout.

    # Parameters

    variables : `TensorVariables`
    options : `BiLmOptions`
        Those that `read_options` completed.
    """

    def __init__(self, variables: TensorVariables, options: BiLmOptions) -> None:
        table = list(datasets(options))
        variables.check_size(table)
        parameters = BiLm(options, device="meta").state_dict()
        variables.check(
            (Dataset(f"bilm.{name}", tuple(each.shape), []) for name, each in parameters.items()),
            parts=("bilm.",),
        )
        super().__init__(variables.source, {dataset.name: dataset.shape for dataset in table})
        self._variables = variables
        self._datasets = {dataset.name: dataset for dataset in table}

    def blocks(
        self, name: str, out: Optional[numpy.ndarray] = None
    ) -> Iterator[Tuple[int, numpy.ndarray]]:
        dataset = self._datasets[name]
        parameters = {
            parameter: torch.from_numpy(block)
            for parameter in {part.parameter for part in dataset.parts}
            for _, block in self._variables.blocks(f"bilm.{parameter}")
        }
        values = dataset.get(parameters).numpy()
        if out is not None:
            numpy.copyto(out, values)
        yield 0, values


# Parameters that determine the options: their names, the datasets that have their numbers, and the
# shape of the dataset from that of the parameter.
_ENCODER, _LSTM = r"bilm\._token_embedder\.", r"bilm\._elmo_lstm\.{}_layer_(\d+)\.input_linearity"
_PARAMETERS: List[Tuple[str, str, Any]] = [
    (rf"{_ENCODER}_char_embedding_weights", "char_embed", lambda n, dim: (n - 1, dim)),
    (rf"{_ENCODER}char_conv_(\d+)\.weight", "CNN/W_cnn_{}", lambda n, dim, w: (1, w, dim, n)),
    (rf"{_ENCODER}_highways\._layers\.(\d+)\.weight", "CNN_high_{}/W_carry", lambda n, d: (d, d)),
    *(
        (rf"{_LSTM.format(key)}\.weight", f"{CELL.format(i, '{}')}/W_0", lambda n, d: (2 * d, n))
        for i, key in enumerate(("forward", "backward"))
    ),
]


def _twice(source: str, name: str, other: str) -> str:
    names = f"'{shown(name, 200)}' and '{shown(other, 200)}'"
    return f"{source}: {names} are two names of one variable; remove one"


def find_variables(folder: Path) -> SavedVariables:
    """
    Open the variables in a folder, or in the TensorFlow checkpoint whose files have this prefix. A
    folder has a checkpoint, or HDF5 weights (see `find_weight_file`) and perhaps softmax.hdf5; if
    it has both, they are those of the checkpoint, which has more.

    # Raises

    `FileNotFoundError` or `ValueError` that names the file and what is wrong with it.
    """
    if not folder.is_dir() or has_checkpoint(folder):
        return CheckpointVariables(TensorFlowCheckpoint(folder))
    weight_file, softmax_file = find_weight_file(folder), folder / SOFTMAX_FILE
    if weight_file is None:
        archives = find_archives(folder)
        hint = f"; is {archives[0]} meant?" if archives else ""
        raise FileNotFoundError(
            f"{folder}: there is neither a checkpoint of TensorFlow (model.ckpt-*.index and "
            f"model.ckpt-*.data-*) nor a {WEIGHT_FILE} or another file that ends with .hdf5, and "
            f"the folder is not that of a training run ({CONFIG_FILE}, {RUN_WEIGHT_FILE}){hint}"
        )
    return Hdf5Variables(weight_file, softmax_file if softmax_file.exists() else None)


def read_options(values: Mapping[str, Any], source: str, variables: SavedVariables) -> BiLmOptions:
    """
    Complete the contents of an options.json from the variables, and check that both describe the
    same layers, sizes and directions. A model of these options is no larger than the variables.

    # Parameters

    values : `Mapping[str, Any]`
        The parsed JSON. What is missing, or `null`, is taken from the variables.
    source : `str`
        Its name in errors.
    variables : `SavedVariables`

    # Raises

    `ValueError` that names the file and the key, both values and what to do.
    """
    shapes = variables.published_shapes
    known = _known_options(shapes)
    completed = _complete(values, known)
    given = flatten(completed)
    for key, value in flatten(known).items():
        # Values of other types are refused below.
        if isinstance(given.get(key), (int, float, list)) and given[key] != value:
            found = json.dumps(value)
            raise ValueError(
                f'{source}: "{key}" is {json.dumps(given[key])[:200]}, but {variables.source} has '
                f"{found}; write {found}, or use the weights that belong to these options"
            )
    options = BiLmOptions.from_dict(completed, source)
    kinds = {"char_embed", "embedding"} & set(shapes)
    if options.char_cnn is None and kinds == {"char_embed"}:
        raise ValueError(
            f'{source}: "char_cnn" is missing, but {variables.source} has the weights of a '
            "character encoder; add it, or use the weights that belong to these options"
        )
    if options.char_cnn is not None and kinds == {"embedding"}:
        raise ValueError(
            f'{source}: "char_cnn" is there, but {variables.source} has a token embedding; remove '
            "it, or use the weights that belong to these options"
        )
    return replace(
        options,
        project_lstm=f"{CELL.format(0, 0)}/W_P_0" in shapes or None,
        project_characters="CNN_proj/W_proj" in shapes or None,
    )


def flatten(values: Mapping[str, Any], prefix: str = "") -> Dict[str, Any]:
    """
    Return the values of nested sections, by their keys with dots between.
    """
    flat: Dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _complete(values: Mapping[str, Any], known: Mapping[str, Any]) -> Dict[str, Any]:
    """
    Return the contents of an options.json, completed with what is known, except a whole `char_cnn`.
    """
    completed = dict(values)
    for key, value in known.items():
        inner = completed.get(key)
        if inner is None and key != "char_cnn":
            completed[key] = value
        elif isinstance(value, Mapping) and isinstance(inner, Mapping):
            completed[key] = _complete(inner, value)
    return completed


def _known_options(shapes: Shapes) -> Dict[str, Any]:
    """
    Return the keys of an options.json that shapes of variables determine.
    """
    known: Dict[str, Any] = {}
    cell = f"{CELL}/W_0"
    kernel = shapes.get(cell.format(0, 0), ())
    if len(kernel) == 2:
        # The kernel has the rows of the input over those of the state.
        known["lstm"] = {
            "dim": kernel[1] // 4,
            "projection_dim": kernel[0] // 2,
            "n_layers": _count(
                shapes, *(f"{CELL.format(0, '{}')}/{kind}" for kind in _LSTM_KINDS.values())
            ),
        }
        known["bidirectional"] = cell.format(1, 0) in shapes
    for name in ("embedding", SOFTMAX_BIAS):
        if shapes.get(name):
            known["n_tokens_vocab"] = shapes[name][0]
    if SOFTMAX_BIAS in shapes and SOFTMAX_WEIGHT not in shapes:
        known["share_embedding_softmax"] = True
    if len(shapes.get("char_embed", ())) == 2:
        n_filters = _count(shapes, "CNN/W_cnn_{}", "CNN/b_cnn_{}")
        filters = [shapes.get(f"CNN/W_cnn_{i}", ()) for i in range(n_filters)]
        known["char_cnn"] = {
            "embedding": {"dim": shapes["char_embed"][1]},
            "n_highway": _count(shapes, *(f"CNN_high_{{}}/{kind}" for kind in _HIGHWAY_KINDS)),
        }
        if filters and all(len(shape) == 4 for shape in filters):  # (1, width, dim, number) each
            known["char_cnn"]["filters"] = [[shape[1], shape[3]] for shape in filters]
    return known


def _count(shapes: Shapes, *names: str) -> int:
    """
    Return how many layers have a variable. `check` names the others that a layer needs.
    """
    number = 0
    while any(name.format(number) in shapes for name in names):
        number += 1
    return number


@torch.no_grad()
def load(model: torch.nn.Module, table: Iterable[Dataset], variables: SavedVariables) -> None:
    """
    Load saved variables into a model. Nothing changes unless all can be read.

    # Parameters

    model : `torch.nn.Module`
        Its parameters may be on the device `"meta"`: they get their memory here.
    table : `Iterable[Dataset]`
        Where the model has the numbers of each variable. It has been checked by `variables.check`.
    variables : `SavedVariables`

    # Raises

    `ValueError` that names the file and the variable: one can't be read, or contains NaN or
    infinity.
    """
    parameters = model.state_dict(keep_vars=True)
    loaded: Dict[int, torch.Tensor] = {}
    table = list(table)
    n_bytes = sum(4 * math.prod(dataset.shape) for dataset in table)
    with step_bar(f"reading {os.path.basename(variables.source)}", n_bytes) as update:
        for dataset in table:
            targets = {part.parameter: parameters[part.parameter] for part in dataset.parts}
            for name, parameter in targets.items():
                if id(parameter) not in loaded:
                    loaded[id(parameter)] = torch.empty(
                        parameter.shape, dtype=torch.float32, device="cpu"
                    )
                    loaded[id(parameter)][:1] = 0.0  # the row of the padding, which is in no file
                targets[name] = loaded[id(parameter)]
            out = next(iter(targets.values())).numpy() if dataset.is_parameter else None
            for start, block in variables.blocks(dataset.name, out):
                values = torch.from_numpy(block)
                # The sum of NaN or infinity is not finite either, and takes a tenth of the time.
                if not bool(values.sum().isfinite()) and not bool(values.isfinite().all()):
                    raise ValueError(
                        f"{variables.file_of(dataset.name)}: the variable {dataset.name!r} "
                        "contains NaN or infinity; get the file again, or export the model again"
                    )
                if out is None:
                    dataset.set(targets, values, start)
                update(block.nbytes)
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None or id(parameter) not in loaded:
                continue
            values = loaded[id(parameter)]
            if not parameter.is_meta:
                parameter.copy_(values)
                continue
            if not isinstance(values, torch.nn.Parameter):
                # On the default device. Parameters that modules share are one.
                values = values.to(torch.empty(0).device, parameter.dtype)
                values = torch.nn.Parameter(values, parameter.requires_grad)
                loaded[id(parameter)] = values
            module._parameters[name] = values


def make_language_model(
    options: BiLmOptions, variables: SavedVariables
) -> Tuple[BiLm, Optional[Softmax]]:
    """
    Make a model of saved variables. There is one copy of a large table in memory.

    # Parameters

    options : `BiLmOptions`
        Those that `read_options` completed.
    variables : `SavedVariables`

    # Returns

    `Tuple[BiLm, Optional[Softmax]]`
        The model and its output layer; `None` if its bias isn't saved.

    # Raises

    `ValueError` that names the file and the variable: one is missing, left over or of another
    shape, or contains NaN or infinity.
    """
    shapes, is_tied = variables.shapes, options.share_embedding_softmax
    n_words = variables.n_words or 0
    weight, bias = softmax_datasets(n_words, options.projection_dim)
    softmax_table: List[Dataset] = []
    if SOFTMAX_WEIGHT in shapes or SOFTMAX_BIAS in shapes:
        softmax_table = [bias] if is_tied and SOFTMAX_WEIGHT not in shapes else [weight, bias]
    # First, as it ends where the file does, however many layers the options ask for.
    variables.check(chain(datasets(options), softmax_table))
    bilm = BiLm(options, device="meta")
    load(bilm, datasets(options), variables)
    if not softmax_table:
        return bilm, None
    shared: Any = bilm.token_layer.weight if is_tied else None
    if is_tied and SOFTMAX_WEIGHT in shapes:
        check_tied(shared.detach(), variables, SOFTMAX_WEIGHT)
    softmax = Softmax(n_words, options.projection_dim, weight=shared, device="meta")
    load(softmax, [bias] if is_tied else [weight, bias], variables)
    return bilm, softmax


def check_tied(table: torch.Tensor, variables: SavedVariables, name: str) -> None:
    """
    Check that a softmax that was saved besides the token embedding `table` is the same.
    """
    for start, block in variables.blocks(name):
        if not numpy.array_equal(block, table[start : start + len(block)].cpu().float().numpy()):
            raise ValueError(
                f"{variables.source}: {name!r} is not the token embedding, but the options say "
                'that it is ("share_embedding_softmax")'
            )
