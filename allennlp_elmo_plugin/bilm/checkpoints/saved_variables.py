"""
The one way to read the weights of language models from any of their files: open them, complete and
check the options with them, and load them into a model.
"""

import json
import math
import os
import re
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import chain, count
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    Union,
)

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
from allennlp_elmo_plugin.bilm.options import BiLmOptions, flatten
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.files.hdf5_file import float_blocks, float_datasets, open_weight_file
from allennlp_elmo_plugin.files.json_file import shown
from allennlp_elmo_plugin.files.tensors import read_tensors
from allennlp_elmo_plugin.progress import step_bar

PathLike = Union[str, "os.PathLike[str]"]
Shapes = Mapping[str, Tuple[int, ...]]
Blocks = Iterator[Tuple[int, numpy.ndarray]]

# An LSTM's variable under any of bilm-tf's names. With one layer there is no `multi_rnn_cell`, and
# forward only no `RNN_0`; its own dump of such models keeps TensorFlow's names in part.
_LSTM_VARIABLE = re.compile(
    r"(?:RNN_(?P<direction>\d+)/)?rnn/"
    r"(?:(?:multi_rnn_cell/cell_|MultiRNNCell/Cell)(?P<layer>\d+)/)?"
    r"(?:lstm_cell|LSTMCell)/(?P<kind>projection/kernel|W_P_0|kernel|W_0|bias|B)",
    re.IGNORECASE,
)
_LSTM_KINDS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
# What the names of a biLM's variables begin with.
_BILM = ("char_embed", "CNN", "embedding", "RNN_", "rnn/")
_ACCUMULATOR = "/Adagrad"


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


class Weights(NamedTuple):
    """
    The variables of a language model in whatever files they are saved, under their names in the
    published layout: those of floating-point numbers.

    # Parameters

    source : `str`
        The name of the file in errors.
    shapes : `Dict[str, Tuple[int, ...]]`
    blocks : `Callable[[str], Iterator[Tuple[int, numpy.ndarray]]]`
        Reads a variable as float32 in blocks of rows, each with the number of its first row. It
        raises a `ValueError` that names the file and the variable; also after the last block.
    files : `Mapping[str, str]`
        The names in errors of variables' files, where they are not in `source`.
    """

    source: str
    shapes: Dict[str, Tuple[int, ...]]
    blocks: Callable[[str], Blocks]
    files: Mapping[str, str] = {}

    @property
    def n_words(self) -> Optional[int]:
        """
        How many words the saved tables of words have; `None` if there are none.
        """
        for name in (SOFTMAX_BIAS, "embedding"):
            if self.shapes.get(name):
                return self.shapes[name][0]
        return None

    def file_of(self, name: str) -> str:
        """
        Return the name of a variable's file in errors.
        """
        return self.files.get(name, self.source)

    def check(self, table: Iterable[Dataset], parts: Tuple[str, ...] = _BILM) -> None:
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
        others = [name for name in self.shapes if name not in expected and name.startswith(parts)]
        if others:
            raise ValueError(
                f"{self.file_of(others[0])}: has the variable '{shown(others[0], 200)}' "
                f"({len(others)} such), which a model of these options does not have; are these "
                "the weights that belong to them?"
            )


@contextmanager
def open_weights(path: PathLike, softmax_file: Optional[PathLike] = None) -> Iterator[Weights]:
    """
    Open the weights of a language model.

    # Parameters

    path : `str`
        An HDF5 file in the published layout, the prefix of a checkpoint of TensorFlow, or the state
        dict of a `bidirectional_lm` (`*.th`).
    softmax_file : `str`, optional (default = `None`)
        The HDF5 file with the output layer, which the published layout has no place for.

    # Raises

    `FileNotFoundError`, or `ValueError` that names the file and what is wrong with it.
    """
    path = os.fspath(path)
    if path.endswith(".th"):
        yield _of_state_dict(path)
    elif path.endswith(".index") or os.path.isfile(f"{path}.index"):
        yield _of_checkpoint(TensorFlowCheckpoint(path))
    else:
        with ExitStack() as files:
            places = {}
            for each in (path, softmax_file):
                if each is not None:
                    found = float_datasets(files.enter_context(open_weight_file(each)))
                    places.update({published_name(name): dataset for name, dataset in found})
            yield Weights(
                path,
                {name: dataset.shape for name, dataset in places.items()},
                lambda name: float_blocks(places[name]),
                {name: dataset.file.filename for name, dataset in places.items()},
            )


def read_accumulators(prefix: PathLike) -> Optional[Tuple[Weights, int]]:
    """
    Return Adagrad's accumulators in a checkpoint, under the names of their variables, and the
    number of updates so far (0 if it is not known); `None` if there are no accumulators.
    """
    checkpoint = TensorFlowCheckpoint(prefix)
    accumulators = _of_checkpoint(checkpoint, _ACCUMULATOR)
    if not accumulators.shapes:
        return None
    if "global_step" not in checkpoint.variables:
        return accumulators, 0
    n_updates = checkpoint.read("global_step")
    if n_updates.shape or not 0 <= n_updates < 2**63:
        raise ValueError(f"{checkpoint.prefix}: 'global_step' must be one number, at least 0")
    return accumulators, int(n_updates)


def _of_checkpoint(checkpoint: TensorFlowCheckpoint, slot: str = "") -> Weights:
    """
    Return the variables of bilm-tf, or those of a slot of its optimizer.
    """
    names: Dict[str, str] = {}  # in the checkpoint, by those in the published layout
    for name, variable in checkpoint.variables.items():
        match = re.fullmatch(rf"lm/(.*?)({_ACCUMULATOR})?", name)
        if match is not None and (match[2] or "") == slot and variable.is_float:
            checkpoint.find(name)
            names[published_name(match[1])] = name

    def blocks(name: str) -> Blocks:
        for start, block in checkpoint.blocks(names[name]):
            with numpy.errstate(over="ignore"):  # of float64, which `load` finds as infinity
                yield start, numpy.array(block, "float32")

    shapes = {name: checkpoint.variables[stored].shape for name, stored in names.items()}
    return Weights(checkpoint.prefix + slot, shapes, blocks)


# Parameters of a `bidirectional_lm`: their names, the datasets that have their numbers, and the
# shape of the dataset from that of the parameter.
_ENCODER, _LSTM = r"bilm\._token_embedder\.", r"bilm\._elmo_lstm\.{}_layer_(\d+)\."
_PARAMETERS: List[Tuple[str, str, Callable[..., Tuple[int, ...]]]] = [
    (r"softmax\.bias", SOFTMAX_BIAS, lambda n: (n,)),
    (r"softmax\.weight", SOFTMAX_WEIGHT, lambda n, dim: (n, dim)),
    (rf"{_ENCODER}weight", "embedding", lambda n, dim: (n, dim)),
    (rf"{_ENCODER}_char_embedding_weights", "char_embed", lambda n, dim: (n - 1, dim)),
    (rf"{_ENCODER}char_conv_(\d+)\.weight", "CNN/W_cnn_{}", lambda n, dim, w: (1, w, dim, n)),
    (rf"{_ENCODER}_highways\._layers\.(\d+)\.weight", "CNN_high_{}/W_carry", lambda n, d: (d, d)),
    (rf"{_ENCODER}_projection\.weight", "CNN_proj/W_proj", lambda dim, n: (n, dim)),
    *(
        (f"{_LSTM.format(key)}{kind}.weight", f"{CELL.format(i, '{}')}/{name}", shape)
        for i, key in enumerate(("forward", "backward"))
        for kind, name, shape in (
            ("input_linearity", "W_0", lambda n, dim: (2 * dim, n)),
            ("state_projection", "W_P_0", lambda dim, n: (n, dim)),
        )
    ),
]


def _of_state_dict(path: str) -> Weights:
    tensors = read_tensors(path)
    shapes: Dict[str, Tuple[int, ...]] = {}
    for name, tensor in tensors.items():
        for pattern, dataset, shape in _PARAMETERS:
            match = re.fullmatch(pattern, name)
            if match is not None:
                with suppress(TypeError):  # of another number of dimensions
                    shapes[dataset.format(*match.groups())] = shape(*tensor.shape)
    values = {name.partition(".")[2]: tensor for name, tensor in tensors.items()}
    places: Dict[str, Dataset] = {}
    weights = Weights(path, shapes, lambda name: iter([(0, places[name].get(values).numpy())]))
    # What the shapes don't tell has no parameters.
    char_cnn = {"activation": "relu", "max_characters_per_token": 1000}
    options = read_options(
        {"char_cnn": char_cnn if "char_embed" in shapes else None}, path, weights
    )
    n_words, dim = options.n_tokens_vocab or 0, options.projection_dim
    model = {"bilm": BiLm(options, device="meta"), "softmax": Softmax(n_words, dim, device="meta")}
    parameters = torch.nn.ModuleDict(model).state_dict()
    for name, parameter in parameters.items():
        if name not in tensors or tensors[name].shape != parameter.shape:
            raise ValueError(
                f"{path}: the parameter {name!r} is missing, or its shape is not "
                f"{tuple(parameter.shape)}, which belongs to the others"
            )
    others = [shown(name, 200) for name in tensors if name not in parameters]
    if others:
        raise ValueError(f"{path}: a bidirectional_lm does not have the parameter '{others[0]}'")
    places.update(
        (each.name, each) for each in (*datasets(options), *softmax_datasets(n_words, dim))
    )
    return weights._replace(shapes={name: each.shape for name, each in places.items()})


def read_options(values: Mapping[str, Any], source: str, weights: Weights) -> BiLmOptions:
    """
    Complete the contents of an options.json from the weights, and check that both describe the
    same layers, sizes and directions. A model of these options is no larger than the weights.

    # Parameters

    values : `Mapping[str, Any]`
        The parsed JSON. What is missing, or `null`, is taken from the weights.
    source : `str`
        Its name in errors.
    weights : `Weights`

    # Raises

    `ValueError` that names the file and the key, both values and what to do.
    """
    shapes = weights.shapes
    known = _known_options(shapes)
    completed = _complete(values, known)
    given = flatten(completed)
    for key, value in flatten(known).items():
        # Values of other types are refused below.
        if isinstance(given.get(key), (int, float, list)) and given[key] != value:
            found = json.dumps(value)
            raise ValueError(
                f'{source}: "{key}" is {json.dumps(given[key])[:200]}, but {weights.source} has '
                f"{found}; write {found}, or use the weights that belong to these options"
            )
    options = BiLmOptions.from_dict(completed, source)
    has_characters = "char_embed" in shapes
    if has_characters != ("embedding" in shapes) and has_characters != bool(options.char_cnn):
        is_there, kind, fix = (
            ("missing", "the weights of a character encoder", "add")
            if has_characters
            else ("there", "a token embedding", "remove")
        )
        raise ValueError(
            f'{source}: "char_cnn" is {is_there}, but {weights.source} has {kind}; {fix} it, or '
            "use the weights that belong to these options"
        )
    return replace(
        options,
        project_lstm=f"{CELL.format(0, 0)}/W_P_0" in shapes or None,
        project_characters="CNN_proj/W_proj" in shapes or None,
    )


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
            "n_layers": _count(shapes, cell.format(0, "{}")),
        }
        known["bidirectional"] = cell.format(1, 0) in shapes
    for name in ("embedding", SOFTMAX_BIAS):
        if shapes.get(name):
            known["n_tokens_vocab"] = shapes[name][0]
    if SOFTMAX_BIAS in shapes and SOFTMAX_WEIGHT not in shapes:
        known["share_embedding_softmax"] = True
    if len(shapes.get("char_embed", ())) == 2:
        n_filters = _count(shapes, "CNN/W_cnn_{}")
        filters = [shapes[f"CNN/W_cnn_{i}"] for i in range(n_filters)]
        known["char_cnn"] = {
            "embedding": {"dim": shapes["char_embed"][1]},
            "n_highway": _count(shapes, "CNN_high_{}/W_carry"),
        }
        if filters and all(len(shape) == 4 for shape in filters):  # (1, width, dim, number) each
            known["char_cnn"]["filters"] = [[shape[1], shape[3]] for shape in filters]
    return known


def _count(shapes: Shapes, name: str) -> int:
    """
    Return how many layers have a variable.
    """
    return next(number for number in count() if name.format(number) not in shapes)


@torch.no_grad()
def load(model: torch.nn.Module, table: Iterable[Dataset], weights: Weights) -> None:
    """
    Load weights into a model. Nothing changes unless all can be read.

    # Parameters

    model : `torch.nn.Module`
        Its parameters may be on the device `"meta"`: they get their memory here.
    table : `Iterable[Dataset]`
        Where the model has the numbers of each variable. It has been checked by `Weights.check`.
    weights : `Weights`

    # Raises

    `ValueError` that names the file and the variable: one can't be read, or contains NaN or
    infinity.
    """
    parameters = model.state_dict(keep_vars=True)
    loaded: Dict[int, torch.Tensor] = {}
    table = list(table)
    n_bytes = sum(4 * math.prod(dataset.shape) for dataset in table)
    with step_bar(f"reading {os.path.basename(weights.source)}", n_bytes) as update:
        for dataset in table:
            targets = {part.parameter: parameters[part.parameter] for part in dataset.parts}
            for name, parameter in targets.items():
                if id(parameter) not in loaded:
                    loaded[id(parameter)] = torch.empty(
                        parameter.shape, dtype=torch.float32, device="cpu"
                    )
                    loaded[id(parameter)][:1] = 0.0  # the row of the padding, which is in no file
                targets[name] = loaded[id(parameter)]
            for start, block in weights.blocks(dataset.name):
                values = torch.from_numpy(block)
                # The sum of NaN or infinity is not finite either, and takes a tenth of the time.
                if not bool(values.sum().isfinite()) and not bool(values.isfinite().all()):
                    raise ValueError(
                        f"{weights.file_of(dataset.name)}: the variable {dataset.name!r} "
                        "contains NaN or infinity; get the file again, or export the model again"
                    )
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


def make_language_model(options: BiLmOptions, weights: Weights) -> Tuple[BiLm, Optional[Softmax]]:
    """
    Make a model of saved weights. There is one copy of a large table in memory.

    # Parameters

    options : `BiLmOptions`
        Those that `read_options` completed.
    weights : `Weights`

    # Returns

    `Tuple[BiLm, Optional[Softmax]]`
        The model and its output layer; `None` if its bias isn't saved.

    # Raises

    `ValueError` that names the file and the variable: one is missing, left over or of another
    shape, or contains NaN or infinity.
    """
    shapes, is_tied = weights.shapes, options.share_embedding_softmax
    n_words = weights.n_words or 0
    weight, bias = softmax_datasets(n_words, options.projection_dim)
    softmax_table: List[Dataset] = []
    if SOFTMAX_WEIGHT in shapes or SOFTMAX_BIAS in shapes:
        softmax_table = [bias] if is_tied and SOFTMAX_WEIGHT not in shapes else [weight, bias]
    # First, as it ends where the file does, however many layers the options ask for.
    weights.check(chain(datasets(options), softmax_table))
    bilm = BiLm(options, device="meta")
    load(bilm, datasets(options), weights)
    if not softmax_table:
        return bilm, None
    shared: Any = bilm.token_layer.weight if is_tied else None
    if is_tied and SOFTMAX_WEIGHT in shapes:
        _check_tied(shared.detach(), weights)
    softmax = Softmax(n_words, options.projection_dim, weight=shared, device="meta")
    load(softmax, [bias] if is_tied else [weight, bias], weights)
    return bilm, softmax


def _check_tied(table: torch.Tensor, weights: Weights) -> None:
    """
    Check that a softmax that was saved besides the token embedding `table` is the same.
    """
    for start, block in weights.blocks(SOFTMAX_WEIGHT):
        if not numpy.array_equal(block, table[start : start + len(block)].cpu().float().numpy()):
            raise ValueError(
                f"{weights.file_of(SOFTMAX_WEIGHT)}: {SOFTMAX_WEIGHT!r} is not the token "
                'embedding, but the options say that it is ("share_embedding_softmax")'
            )
