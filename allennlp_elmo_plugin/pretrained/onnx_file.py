"""Write a language model as one ONNX graph of standard operators, which runs without Python."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper

from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.character_encoder import CharacterEncoder
from allennlp_elmo_plugin.bilm.characters import PADDING, words_to_character_ids
from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.pretrained.language_model import PretrainedLanguageModel

# The oldest with these operators; ONNX Runtime reads both since version 1.12.
_OPSET, _IR_VERSION = 17, 8
_LICENCE = re.compile(r"^#+ [^\n]*licen[cs]e[^\n]*\n(.*?)(?=^#|\Z)", re.I | re.M | re.S)


@torch.no_grad()
def write_onnx(
    path: Path,
    title: str,
    model: PretrainedLanguageModel,
    make_card: Callable[[], str],
    precision: str = "float32",
    initial_state: str = "settled",
) -> None:
    """
    Write a language model to a file. The input is `character_ids` as `batch_to_ids` makes them,
    int64 of shape `(batch_size, timesteps, max_characters_per_token)`; or for a model of words
    `token_ids`, places in its vocabulary and -1 after the end of a sentence, shape `(batch_size,
    timesteps)`. The output is `layers`, float32 of shape `(n_layers + 1, batch_size, timesteps,
    n_directions * projection_dim)`, zero after the end of a sentence.

    `make_card` is called once the graph is in the file. With `precision` `"float16"`, the
    parameters of the model are rounded, too.
    """
    bilm, metadata = model.bilm.eval(), {"title": title, "initial_state": initial_state}
    for name, parameter in bilm.named_parameters() if precision == "float16" else ():
        parameter.copy_(parameter.half())
        if not parameter.isfinite().all():
            raise ValueError(f"{name!r} has numbers beyond those of float16 (65,504); use float32")
    shape: list[Any] = ["batch_size", "timesteps"]
    if isinstance(encoder := bilm.token_layer, CharacterEncoder):
        width = encoder.options.max_characters_per_token
        marks = words_to_character_ids(encoder.boundary_words, width).astype(np.int64)
        source, input_shape = "character_ids", [*shape, width]
    else:
        words = model.words or []
        marks = np.array([words.index(word) for word in CharacterEncoder.boundary_words])
        source, input_shape = "token_ids", shape
        metadata["vocabulary"] = "\n".join(words)
    start = CarriedState()
    if initial_state == "settled":
        start = bilm.settle(encoder(torch.from_numpy(marks)))
    graph = _Graph(precision == "float16")
    _add_bilm(graph, bilm, source, marks.reshape(2, -1), start)
    inputs = [helper.make_tensor_value_info(source, TensorProto.INT64, input_shape)]
    output_shape = [bilm.num_layers, *shape, bilm.get_output_dim()]
    outputs = [helper.make_tensor_value_info("layers", TensorProto.FLOAT, output_shape)]
    written = helper.make_model(
        helper.make_graph(graph.nodes, "elmo", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="allennlp_elmo_plugin",
    )
    path.write_bytes(written.SerializeToString())
    metadata["options"] = json.dumps(model.options.to_dict())
    about = ModelProto(doc_string=make_card())
    if licence := _LICENCE.search(about.doc_string):
        metadata["model_license"] = licence[1].strip()
    helper.set_model_props(about, metadata)
    with path.open("ab") as file:  # Readers merge messages that follow each other.
        file.write(about.SerializeToString())


class _Graph:
    """Nodes and constants of a graph. A call adds a node, and returns the name of its output."""

    def __init__(self, is_half: bool = False, outer: "_Graph | None" = None) -> None:
        self.is_half = is_half
        self.outer = outer or self
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._numbers = itertools.count()

    def __call__(self, operator: str, *inputs: Any, n_outputs: int = 1, **attributes: Any) -> Any:
        outputs = [self.new_name() for _ in range(n_outputs)]
        self.add(operator, inputs, outputs, **attributes)
        return outputs[0] if n_outputs == 1 else outputs

    def add(self, operator: str, inputs: Any, outputs: list[str], **attributes: Any) -> None:
        """Add a node. Inputs are names, or numbers that become constants."""
        names = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        self.nodes.append(helper.make_node(operator, names, outputs, **attributes))

    def new_name(self) -> str:
        return f"value_{next(self.outer._numbers)}"

    def _constant(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            value = value.numpy()
        values = np.array(value, "float32" if isinstance(value, float) else None, order="C")
        if values.dtype.kind == "i":
            values = values.astype(np.int64)
        is_half = self.outer.is_half and values.dtype == np.float32 and values.ndim > 1
        name = self.new_name()
        stored = values.astype(np.float16) if is_half else values
        self.outer.constants.append(numpy_helper.from_array(stored, name))
        return self.outer("Cast", name, to=TensorProto.FLOAT) if is_half else name


def _add_bilm(graph: _Graph, bilm: BiLm, ids: str, marks: np.ndarray, start: CarriedState) -> None:
    """Add the model, from ids to `layers`. `marks` are the ids of `<S>` and `</S>`."""
    options, encoder, lstms = bilm.options, bilm.token_layer, bilm.lstm
    padding = 0
    if not isinstance(encoder, CharacterEncoder):
        ids, padding = graph("Unsqueeze", ids, [2]), -1
    # Comments give shapes, where T is the number of time steps with <S> and </S>.
    is_word = graph("Greater", graph("Gather", ids, 0, axis=2), padding)  # (batch_size, T - 2)
    n_words = graph("ReduceSum", graph("Cast", is_word, to=TensorProto.INT64), [1])  # (.., 1)
    tokens = graph("Pad", ids, [0, 1, 0, 0, 1, 0], padding)  # (batch_size, T, width)
    shape = graph("Shape", tokens)
    batch_size, n_steps = (graph("Slice", shape, [axis], [axis + 1]) for axis in (0, 1))
    steps = graph("Range", 0, graph("Squeeze", n_steps), 1)  # (T,)
    for place, mark in zip(([[0]], graph("Add", n_words, 1)), marks):
        is_here = graph("Unsqueeze", graph("Equal", steps, place), [2])  # (batch_size or 1, T, 1)
        tokens = graph("Where", is_here, mark, tokens)
    tokens = graph("Reshape", tokens, [-1, marks.shape[1]])  # (batch_size * T, width)
    if isinstance(encoder, CharacterEncoder):
        vectors = _add_characters(graph, encoder, tokens)
    else:
        vectors = graph("Gather", encoder.weight, graph("Squeeze", tokens, [1]))
    shape = graph("Concat", batch_size, n_steps, [options.projection_dim], axis=0)
    vectors = graph("Transpose", graph("Reshape", vectors, shape), perm=[1, 0, 2])

    rows = graph("Concat", batch_size, [1], axis=0)
    lengths = graph("Add", graph("Squeeze", n_words, [1]), 2)  # (batch_size,)
    states = start.read(
        (
            torch.zeros(options.n_layers, 1, len(lstms.directions) * lstms.hidden_size),
            torch.zeros(options.n_layers, 1, len(lstms.directions) * lstms.cell_size),
        )
    )
    directions = []
    for direction in lstms.directions:
        # The backward direction reads each sentence from its end, then the padding.
        ends = {} if direction == "forward" else {"time_axis": 0, "batch_axis": 1}
        layers = [graph("ReverseSequence", vectors, lengths, **ends) if ends else vectors]
        for index in range(options.n_layers):
            of_layer = [lstms.part(state, [direction])[0, index, 0] for state in states]
            first = [graph("Expand", state, rows) for state in of_layer]  # (batch_size, size) each
            lstm = lstms.layer(direction, index)
            output = _add_lstm(graph, lstm, bilm.forget_bias, first, layers[-1])
            if index and options.use_skip_connections:
                output = graph("Add", output, layers[-1])
            layers.append(output)  # (T, batch_size, dim)
        if ends:
            layers = [graph("ReverseSequence", layer, lengths, **ends) for layer in layers]
        directions.append(layers)
    both = (graph("Concat", *layers, axis=2) for layers in zip(*directions))
    stacked = graph("Concat", *(graph("Unsqueeze", layer, [0]) for layer in both), axis=0)
    inner = graph("Slice", stacked, [1], [-1], [1])  # (n_layers + 1, T - 2, batch_size, all dims)
    inner = graph("Transpose", inner, perm=[0, 2, 1, 3])
    graph.add("Where", [graph("Unsqueeze", is_word, [2]), inner, 0.0], ["layers"])


def _add_characters(graph: _Graph, encoder: CharacterEncoder, ids: str) -> str:
    """Add the character encoder, from ids, shape `(n_words, width)`, to `(n_words, dim)`."""
    options = encoder.options
    widest = max(width for width, _ in options.filters)
    # Cut to the longest word and an n-gram of padding, since all later n-grams are equal. Of all
    # ids, only those of padding are multiples of its id.
    is_character = graph("Cast", graph("Mod", ids, PADDING + 1), to=TensorProto.BOOL)
    places = graph("Where", is_character, range(1, options.max_characters_per_token + 1), 0)
    end = graph("Add", graph("ReduceMax", places, keepdims=0), [widest])
    ids = graph("Slice", ids, [0], end, [1])
    characters = graph("Gather", encoder._char_embedding_weights, ids)
    characters = graph("Transpose", characters, perm=[0, 2, 1])  # (n_words, dim, n_characters)
    ngrams = (graph("Conv", characters, each.weight, each.bias) for each in encoder.convolutions)
    maxima = [graph("ReduceMax", values, axes=[2], keepdims=0) for values in ngrams]
    vectors = graph("Concat", *maxima, axis=1)  # (n_words, n_filters)
    vectors = graph("Relu" if options.activation == "relu" else "Tanh", vectors)
    for layer in encoder.highway_layers:
        both = graph("Gemm", vectors, layer.weight, layer.bias, transB=1)
        new, gate = graph("Split", both, [options.n_filters] * 2, axis=1, n_outputs=2)
        new = graph("Relu", new)
        kept = graph("Mul", graph("Sigmoid", gate), graph("Sub", vectors, new))
        vectors = graph("Add", new, kept)
    if (projection := encoder._projection) is not None:
        vectors = graph("Gemm", vectors, projection.weight, projection.bias, transB=1)
    return vectors


def _add_lstm(
    graph: _Graph, lstm: ProjectedLstm, forget_bias: float, first: list[str], inputs: str
) -> str:
    """
    Add a layer as `ProjectedLstm` describes it, from its first output and cell and from inputs,
    shape `(T, batch_size, dim)`, to outputs, shape `(T, batch_size, dim)`.
    """
    size = lstm.cell_size
    weight_input, weight_state, bias, *projection = lstm.weights
    bias = bias.clone()
    bias[size : 2 * size] += forget_bias
    from_inputs = graph("Add", graph("MatMul", inputs, weight_input.t()), bias)
    step = _Graph(outer=graph)
    output, cell, added = names = [graph.new_name() for _ in range(3)]
    gates = step("Gemm", output, weight_state, added, transB=1)
    in_gate, forget_gate, candidate, out_gate = (
        step(function, part)
        for function, part in zip(
            ("Sigmoid", "Sigmoid", "Tanh", "Sigmoid"),
            step("Split", gates, [size] * 4, axis=1, n_outputs=4),
        )
    )
    kept = step("Mul", forget_gate, cell)
    new_cell = step("Add", kept, step("Mul", in_gate, candidate))
    cell_clip, proj_clip = lstm.clips
    if cell_clip is not None:
        new_cell = step("Clip", new_cell, -float(cell_clip), float(cell_clip))
    new_output = step("Mul", out_gate, step("Tanh", new_cell))
    if projection:
        new_output = step("MatMul", new_output, projection[0].t())
    if proj_clip is not None:
        new_output = step("Clip", new_output, -float(proj_clip), float(proj_clip))
    results = [new_output, new_cell, step("Identity", new_output)]
    dim = lstm.hidden_size

    def values(names: list[str], *sizes: int) -> list[Any]:
        shapes = ([None, size] for size in sizes)  # (batch_size, size) each
        return list(map(helper.make_tensor_value_info, names, [TensorProto.FLOAT] * 3, shapes))

    ends = values(names, dim, size, 4 * size), values(results, dim, size, dim)
    body = helper.make_graph(step.nodes, "step", *ends)
    return graph("Scan", *first, from_inputs, n_outputs=3, body=body, num_scan_inputs=1)[2]
