"""
The published layout of a biLM's weights (that of bilm-tf's `dump_weights`): a table of the numbers
of each dataset and their places in the model, shared by readers and writers. It needs no model, so
that files can be compared with options before there is memory for one.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch

from allennlp_elmo_plugin.bilm.characters import N_CHARACTERS
from allennlp_elmo_plugin.bilm.options import BiLmOptions

CELL = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell"
"""The beginning of the datasets of an LSTM layer, by the numbers of its direction and layer."""
SOFTMAX_WEIGHT, SOFTMAX_BIAS = "softmax/W", "softmax/b"

_ALL = slice(None)
# Each gate's place in TensorFlow (i, g, f, o) and in the model (i, f, g, o).
_GATES = ((0, 0), (1, 2), (2, 1), (3, 3))


def _same(rows: torch.Tensor) -> torch.Tensor:
    return rows


def _convolution(weight: torch.Tensor) -> torch.Tensor:
    # From (n_filters, dim, width) to (1, width, dim, n_filters).
    return weight.permute(2, 1, 0).unsqueeze(0)


class Part(NamedTuple):
    """
    The place of some numbers of a dataset in a model: `layout(parameter[rows])`, a view of the
    parameter, is `sign * dataset[place] + offset`.
    """

    parameter: str
    rows: slice = _ALL
    layout: Callable[[torch.Tensor], torch.Tensor] = _same
    place: tuple[slice, ...] = (_ALL,)
    sign: float = 1.0
    offset: float = 0.0

    def view(self, parameters: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return self.layout(parameters[self.parameter].detach()[self.rows])


class Dataset(NamedTuple):
    """A dataset of the published layout: its name, its shape, and the places of its numbers."""

    name: str
    shape: tuple[int, ...]
    parts: list[Part]

    def get(self, parameters: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the dataset, float32 on the CPU, of a model's parameters, by their names."""
        if self.parts == [Part(self.parts[0].parameter)]:  # without a copy of a large table
            return self.parts[0].view(parameters).cpu().float().contiguous()
        values = torch.empty(self.shape, dtype=torch.float32, device="cpu")
        for part in self.parts:
            values[part.place] = ((part.view(parameters) - part.offset) * part.sign).to(values)
        return values

    def set(
        self, parameters: Mapping[str, torch.Tensor], rows: torch.Tensor, start: int = 0
    ) -> None:
        """Write rows of the dataset, from row `start`, to a model's parameters."""
        for part in self.parts:
            first, stop, _ = part.place[0].indices(start + len(rows))
            begin = max(first, start)
            if begin < stop:
                view = part.view(parameters)[begin - first : stop - first]
                view.copy_(rows[(slice(begin - start, stop - start), *part.place[1:])])
                if part.sign < 0:
                    view.neg_()
                if part.offset:
                    view.add_(part.offset)


def datasets(options: BiLmOptions, forget_bias: float = 1.0) -> Iterator[Dataset]:
    """Yield the datasets of weights.hdf5 for a `BiLm` of these arguments."""
    char_cnn, dim, lstm_dim = options.char_cnn, options.projection_dim, options.lstm_dim
    encoder = "_token_embedder"
    if char_cnn is None:
        shape = options.n_tokens_vocab or 0, dim
        yield Dataset("embedding", shape, [Part(f"{encoder}.weight")])
    else:
        n_filters, character_dim = char_cnn.n_filters, char_cnn.embedding_dim
        # Row 0 of the parameter, the padding of the time axis, is not in the file.
        part = Part(f"{encoder}._char_embedding_weights", slice(1, None))
        yield Dataset("char_embed", (N_CHARACTERS - 1, character_dim), [part])
        for i, (width, number) in enumerate(char_cnn.filters):
            part = Part(f"{encoder}.char_conv_{i}.weight", layout=_convolution)
            yield Dataset(f"CNN/W_cnn_{i}", (1, width, character_dim, number), [part])
            yield Dataset(f"CNN/b_cnn_{i}", (number,), [Part(f"{encoder}.char_conv_{i}.bias")])
        for i in range(char_cnn.n_highway):
            layer = f"{encoder}._highways._layers.{i}"
            # bilm-tf's carry gate is 1 minus the model's, so its weights have the opposite sign.
            for gate, start, sign in (("transform", 0, 1.0), ("carry", n_filters, -1.0)):
                rows = slice(start, start + n_filters)
                part = Part(f"{layer}.weight", rows, torch.t, sign=sign)
                yield Dataset(f"CNN_high_{i}/W_{gate}", (n_filters, n_filters), [part])
                part = Part(f"{layer}.bias", rows, sign=sign)
                yield Dataset(f"CNN_high_{i}/b_{gate}", (n_filters,), [part])
        if options.projects_characters:
            part = Part(f"{encoder}._projection.weight", layout=torch.t)
            yield Dataset("CNN_proj/W_proj", (n_filters, dim), [part])
            yield Dataset("CNN_proj/b_proj", (dim,), [Part(f"{encoder}._projection.bias")])
    gates = [slice(i * lstm_dim, (i + 1) * lstm_dim) for i in range(4)]
    # The rows of the kernel: the input's come before those of the state.
    inputs = ("input_linearity", slice(0, dim)), ("state_linearity", slice(dim, 2 * dim))
    for number, direction in enumerate(options.directions):
        for layer_index in range(options.n_layers):
            cell = CELL.format(number, layer_index)
            layer = f"_elmo_lstm.{direction}_layer_{layer_index}"
            kernel = [
                Part(f"{layer}.{linear}.weight", gates[own], torch.t, (rows, gates[stored]))
                for linear, rows in inputs
                for stored, own in _GATES
            ]
            yield Dataset(f"{cell}/W_0", (2 * dim, 4 * lstm_dim), kernel)
            bias = []
            for stored, own in _GATES:
                offset = 1.0 - forget_bias if (stored, own) == (2, 1) else 0.0  # the forget gate
                name = f"{layer}.state_linearity.bias"
                bias.append(Part(name, gates[own], place=(gates[stored],), offset=offset))
            yield Dataset(f"{cell}/B", (4 * lstm_dim,), bias)
            if options.projects_lstm:
                part = Part(f"{layer}.state_projection.weight", layout=torch.t)
                yield Dataset(f"{cell}/W_P_0", (lstm_dim, dim), [part])


def softmax_datasets(n_words: int, dim: int) -> list[Dataset]:
    """Return the datasets of a `Softmax`, by their names in bilm-tf's checkpoints."""
    return [
        Dataset(SOFTMAX_WEIGHT, (n_words, dim), [Part("weight")]),
        Dataset(SOFTMAX_BIAS, (n_words,), [Part("bias")]),
    ]
