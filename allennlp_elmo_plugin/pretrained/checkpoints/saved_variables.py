"""Open the weights of a language model, complete its options by them, and load them into it."""

import math
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, count, takewhile
from typing import Any, NamedTuple

import numpy as np
import torch

from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.files.atomic import PathLike
from allennlp_elmo_plugin.files.hdf5_file import float_datasets, open_weight_file
from allennlp_elmo_plugin.files.json_file import escaped
from allennlp_elmo_plugin.pretrained.checkpoints.published_layout import (
    CELL,
    SOFTMAX_BIAS,
    SOFTMAX_WEIGHT,
    Dataset,
    datasets,
    softmax_datasets,
)
from allennlp_elmo_plugin.pretrained.checkpoints.tensorflow_checkpoint import read_index
from allennlp_elmo_plugin.progress import step_bar

BLOCK = 2**19  # numbers that are read at a time, which fit the processor's cache
# An LSTM's variable under any of bilm-tf's names. A single layer has no `multi_rnn_cell`, a forward
# model no `RNN_0`, and a module of TensorFlow Hub has a second `rnn`.
_LSTM_VARIABLE = re.compile(
    r"(?:RNN_(?P<direction>\d+)/)?rnn/"
    r"(?:(?:multi_rnn_cell/cell_|MultiRNNCell/Cell)(?P<layer>\d+)/)?"
    r"(?:rnn/)?(?:lstm_cell|LSTMCell)/(?P<kind>projection/kernel|W_P_0|kernel|W_0|bias|B)",
    re.IGNORECASE,
)
_LSTM_KINDS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
# The beginnings of the names of a biLM's variables.
_BILM = ("char_embed", "CNN", "embedding", "RNN_", "rnn/")
_ACCUMULATOR = "/Adagrad"
# bilm-tf's variables in training, and in a graph for prediction, such as a module of TensorFlow Hub
_SCOPES = r"lm|(?P<prediction>(?:module(?:_\d+)?/)?bilm)"
_ADVICE = "are these the weights that belong to the options?"


def published_name(name: str) -> str:
    """Return the published name of a variable in any file, without the `lm/` of TensorFlow."""
    match = _LSTM_VARIABLE.fullmatch(name)
    if match is None:
        return name
    kind = _LSTM_KINDS.get(match["kind"], match["kind"])
    return f"{CELL.format(match['direction'] or 0, match['layer'] or 0)}/{kind}"


class Variable(NamedTuple):
    """A variable's file and shape, and a function that opens an array to be read by slices."""

    file: str
    shape: tuple[int, ...]
    open: Callable[[], Any]


class Weights(NamedTuple):
    """The variables of a language model by their published names. Errors name `source`."""

    source: str
    variables: Mapping[str, Variable]

    @property
    def n_words(self) -> int | None:
        """The number of words in the saved tables of words; `None` if there are none."""
        return self.size(SOFTMAX_BIAS)[-1] or self.size("embedding")[-2] or None

    def size(self, name: str) -> tuple[int, ...]:
        """Return the last three sizes of a variable, 0 for those that are missing."""
        shape = self.variables[name].shape if name in self.variables else ()
        return (0, 0, 0, *shape)[-3:]

    def check(self, table: Iterable[Dataset], parts: tuple[str, ...] = _BILM) -> None:
        """
        Check that all variables of a table are there, and no others whose names begin with `parts`,
        by default those of a biLM. Nothing is read or allocated.
        """
        expected = set()
        for name, shape, _ in table:
            expected.add(name)
            if name not in self.variables:
                text = f"the variable {name!r} is missing, or has no floating-point numbers"
                raise ValueError(f"{self.source}: {text}; {_ADVICE}")
            variable = self.variables[name]
            if variable.shape != shape:
                text = f"has shape {variable.shape}, but the options ask for {shape}"
                raise ValueError(f"{variable.file}: the variable {name!r} {text}; {_ADVICE}")
        for name, variable in self.variables.items():
            if name not in expected and name.startswith(parts):
                text = f"has the variable '{escaped(name, 200)}', which the options don't ask for"
                raise ValueError(f"{variable.file}: {text}; {_ADVICE}")

    def read(self, name: str) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield a variable as float32, in blocks of rows, each with the number of its first row."""
        variable = self.variables[name]
        try:
            array = variable.open()
            n_rows = max(1, BLOCK // max(1, math.prod(variable.shape[1:])))
            if getattr(array, "chunks", None):  # those of HDF5 are decompressed once
                n_rows += -n_rows % array.chunks[0]
            for start in range(0, variable.shape[0], n_rows):
                with np.errstate(over="ignore"):  # of float64, which becomes infinity
                    block = np.asarray(array[start : start + n_rows], "float32")
                yield start, torch.from_numpy(block)
        except Exception as error:  # h5py has no class for the errors of HDF5
            raise ValueError(
                f"{variable.file}: the variable {name!r} can't be read, the file is damaged "
                f"({escaped(error, 200)})"
            ) from error


@contextmanager
def open_weights(path: PathLike, softmax_file: PathLike | None = None) -> Iterator[Weights]:
    """Open an HDF5 file, with that of its softmax, or the prefix of a checkpoint of TensorFlow."""
    path = os.fspath(path)
    if path.endswith(".index") or os.path.isfile(f"{path}.index"):
        yield _of_checkpoint(path.removesuffix(".index"))
        return
    variables: dict[str, Variable] = {}
    with ExitStack() as files:
        for source in (path,) if softmax_file is None else (path, softmax_file):
            file = files.enter_context(open_weight_file(source))
            for name, dataset in float_datasets(file):
                get = partial(file.__getitem__, name)
                variables[published_name(name)] = Variable(file.filename, dataset.shape, get)
        yield Weights(path, variables)


def _of_checkpoint(prefix: str, slot: str = "") -> Weights:
    """Return the variables of bilm-tf in a checkpoint, or those of a slot of its optimizer."""
    variables: dict[str, Variable] = {}
    for name, entry in read_index(prefix).items():
        match = re.fullmatch(rf"(?:{_SCOPES})/(?P<name>.*?)(?P<slot>{_ACCUMULATOR})?", name)
        if match is not None and (match["slot"] or "") == slot and entry.is_float:
            entry.check()
            variable = Variable(entry.file, entry.shape, entry.open)
            if match["prediction"] and match["name"] == "char_embed" and entry.shape:
                variable = _without_padding(variable)
            variables[published_name(match["name"])] = variable
    return Weights(prefix + slot, variables)


def _without_padding(variable: Variable) -> Variable:
    # The first row, of the padding of the time axis, which other files don't have.
    file, (n_rows, *others), get = variable
    return Variable(file, (n_rows - 1, *others), lambda: get()[1:])


def read_accumulators(prefix: PathLike) -> tuple[Weights, int] | None:
    """Return Adagrad's accumulators and the number of updates so far; `None` if there are none."""
    accumulators = _of_checkpoint(os.fspath(prefix), _ACCUMULATOR)
    if not accumulators.variables:
        return None
    step = read_index(prefix).get("global_step")
    number = np.zeros(()) if step is None else step.open()
    if number.shape or not 0 <= number < 2**63:
        raise ValueError(f"{prefix}: 'global_step' must be one number, at least 0")
    return accumulators, int(number)


def weights_of_state_dict(
    source: str, tensors: Mapping[str, torch.Tensor], options: BiLmOptions
) -> Weights:
    """Return the weights in the state dict of a `bidirectional_lm` of these options."""
    n_words, dim = options.n_tokens_vocab or 0, options.projection_dim
    parameters = {name.partition(".")[2]: tensor for name, tensor in tensors.items()}
    variables: dict[str, Variable] = {}
    for dataset in chain(datasets(options), softmax_datasets(n_words, dim)):
        for part in dataset.parts:
            # This ends the loop, however many layers the options ask for.
            if part.parameter not in parameters:
                raise ValueError(f"{source}: the parameter '{part.parameter}' is missing")
        get = partial(dataset.get, parameters)
        variables[dataset.name] = Variable(source, dataset.shape, get)
    model = {"bilm": BiLm(options, device="meta"), "softmax": Softmax(n_words, dim, device="meta")}
    expected = torch.nn.ModuleDict(model).state_dict()
    for name, tensor in tensors.items():
        if name not in expected or tensor.shape != expected[name].shape:
            text = f"no parameter '{escaped(name, 200)}' of the shape {tuple(tensor.shape)}"
            raise ValueError(f"{source}: a model of these options has {text}; {_ADVICE}")
    return Weights(source, variables)


def read_options(values: Mapping[str, Any], source: str, weights: Weights) -> BiLmOptions:
    """Check an options.json, and complete it by the weights with what it lacks or can't express."""
    names, completed = weights.variables, dict(values)
    if completed.get("bidirectional") is None:
        completed["bidirectional"] = f"{CELL.format(1, 0)}/W_0" in names
    if weights.n_words is not None:
        completed["n_tokens_vocab"] = weights.n_words
    if SOFTMAX_BIAS in names and SOFTMAX_WEIGHT not in names:
        completed["share_embedding_softmax"] = True
    return replace(
        BiLmOptions.from_dict(completed, source),
        project_lstm=f"{CELL.format(0, 0)}/W_P_0" in names or None,
        project_characters="CNN_proj/W_proj" in names or None,
    )


def numbered(names: Container[str], form: str) -> list[str]:
    """Return the names of a form such as "layer_{}", numbered from 0 up to one that is missing."""
    return list(takewhile(names.__contains__, map(form.format, count())))


def options_of_shapes(weights: Weights) -> dict[str, Any]:
    """Return an options.json with the sizes of the weights, and all else as in published models."""
    names, size = weights.variables, weights.size
    filters = [size(name) for name in numbered(names, "CNN/W_cnn_{}")]  # width, dim, number
    _, n_inputs, n_gates = size(CELL.format(0, 0) + "/W_0")
    char_cnn = {
        "activation": "relu",
        "embedding": {"dim": size("char_embed")[-1]},
        "filters": [[width, number] for width, _, number in filters],
        "n_highway": len(numbered(names, "CNN_high_{}/W_carry")),
    }
    lstm = {
        "dim": n_gates // 4,
        "projection_dim": n_inputs // 2,
        "n_layers": len(numbered(names, CELL.format(0, "{}") + "/W_0")),
        "cell_clip": 3.0,
        "proj_clip": 3.0,
        "use_skip_connections": True,
    }
    return {"char_cnn": char_cnn, "lstm": lstm}


@torch.no_grad()
def load(
    model: torch.nn.Module,
    table: Iterable[Dataset],
    weights: Weights,
    parts: tuple[str, ...] = _BILM,
) -> None:
    """
    Load weights into a model, by a table that `weights` have to fit; see `Weights.check`.
    Parameters on the device `"meta"` get their memory here. Nothing changes unless all numbers can
    be read and are finite.
    """
    parameters = model.state_dict()
    loaded: dict[str, torch.Tensor] = {}
    table = list(table)
    weights.check(table, parts)
    n_bytes = sum(4 * math.prod(dataset.shape) for dataset in table)
    with step_bar(f"reading {os.path.basename(weights.source)}", n_bytes) as update:
        for dataset in table:
            for part in dataset.parts:
                if part.parameter not in loaded:
                    values = torch.empty(parameters[part.parameter].shape, dtype=torch.float32)
                    values[:1] = 0.0  # the row of the padding, which is in no file
                    loaded[part.parameter] = values
            for start, block in weights.read(dataset.name):
                # The sum of NaN or infinity is not finite either, and takes a tenth of the time.
                if not bool(block.sum().isfinite()) and not bool(block.isfinite().all()):
                    raise ValueError(
                        f"{weights.variables[dataset.name].file}: the variable {dataset.name!r} "
                        "contains NaN or infinity; get the file again, or export the model again"
                    )
                dataset.set(loaded, block, start)
                update(4 * block.numel())
    # Parameters without memory are replaced; others keep their type and device.
    is_empty = all(parameters[name].is_meta for name in loaded)
    model.load_state_dict(loaded, strict=False, assign=is_empty)


def make_language_model(options: BiLmOptions, weights: Weights) -> tuple[BiLm, Softmax | None]:
    """
    Make a model of saved weights and the options that they completed, and its softmax, `None` if
    that isn't saved. There is never a second copy of a large table in memory.
    """
    bilm = BiLm(options, device="meta")
    load(bilm, datasets(options), weights)
    if not {SOFTMAX_WEIGHT, SOFTMAX_BIAS} & weights.variables.keys():
        return bilm, None
    n_words, dim = weights.n_words or 0, options.projection_dim
    is_tied = options.share_embedding_softmax
    shared: Any = bilm.token_layer.weight if is_tied else None
    softmax = Softmax(n_words, dim, weight=shared, device="meta")
    load(softmax, softmax_datasets(n_words, dim)[1 if is_tied else 0 :], weights, parts=())
    return bilm, softmax
