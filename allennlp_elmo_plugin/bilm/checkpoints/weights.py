import math
import os
from dataclasses import replace
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Tuple, Union

import torch

from allennlp_elmo_plugin.bilm.character_encoder import CharacterEncoder
from allennlp_elmo_plugin.bilm.characters import N_CHARACTERS
from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.files.hdf5_file import is_float, open_weight_file, read_floats
from allennlp_elmo_plugin.files.whole_file import LateErrorFile, whole_file

Path = Union[str, "os.PathLike[str]"]


class _Dataset(NamedTuple):
    """
    One dataset of the published layout: its name, its shape, and the way between it and the model.
    `get` makes the array, `set` takes it.
    """

    name: str
    shape: Tuple[int, ...]
    get: Callable[[], torch.Tensor]
    set: Callable[[torch.Tensor], None]


def _assign(target: torch.Tensor) -> Callable[[torch.Tensor], None]:
    def set_values(values: torch.Tensor) -> None:
        with torch.no_grad():
            target.copy_(values)

    return set_values


def _part(
    name: str,
    parameter: torch.Tensor,
    there: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
    back: Optional[Callable[[torch.Tensor], torch.Tensor]] = None,
) -> _Dataset:
    """
    A dataset that is one parameter seen through `there`, and read through its inverse `back`.
    """
    back = back or there
    assign = _assign(parameter.data)
    shape = tuple(there(parameter.data).shape)
    return _Dataset(
        name,
        shape,
        lambda: there(parameter.data),
        lambda values: assign(back(values)),
    )


def _transpose(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.t()


def _swap_gates(tensor: torch.Tensor) -> torch.Tensor:
    """
    Exchanges the two middle quarters of the first dimension: TensorFlow's i, g, f, o and the
    model's i, f, g, o.
    """
    first, second, third, fourth = tensor.chunk(4)
    return torch.cat([first, third, second, fourth])


def _character_datasets(encoder: CharacterEncoder) -> Iterator[_Dataset]:
    # Row 0, the padding of the time axis, is not in the file.
    yield _part("char_embed", encoder._char_embedding_weights[1:])
    for i, convolution in enumerate(encoder.convolutions):
        # (n_filters, dim, width) and (1, width, dim, n_filters)
        yield _part(
            f"CNN/W_cnn_{i}",
            convolution.weight,
            lambda weight: weight.permute(2, 1, 0).unsqueeze(0),
            lambda weight: weight.squeeze(0).permute(2, 1, 0),
        )
        yield _part(f"CNN/b_cnn_{i}", convolution.bias)  # type: ignore[arg-type]
    for i, layer in enumerate(encoder.highway_layers):
        dim = layer.in_features
        name = f"CNN_high_{i}"
        yield _part(f"{name}/W_transform", layer.weight[:dim], _transpose)
        yield _part(f"{name}/b_transform", layer.bias[:dim])
        # bilm-tf's carry gate is 1 minus ours, so its weights have the opposite sign.
        yield _part(f"{name}/W_carry", layer.weight[dim:], lambda weight: -weight.t())
        yield _part(f"{name}/b_carry", layer.bias[dim:], torch.neg)
    if encoder.projection is not None:
        yield _part("CNN_proj/W_proj", encoder.projection.weight, _transpose)
        yield _part("CNN_proj/b_proj", encoder.projection.bias)


def _lstm_datasets(lstm: ProjectedLstm, name: str) -> Iterator[_Dataset]:
    weight_input, weight_state = lstm.input_linearity.weight.data, lstm.state_linearity.weight.data
    bias = lstm.state_linearity.bias.data
    in_dim = weight_input.size(1)
    forget = slice(lstm.dim, 2 * lstm.dim)

    def get_kernel() -> torch.Tensor:
        return _swap_gates(torch.cat([weight_input, weight_state], 1)).t()

    def set_kernel(values: torch.Tensor) -> None:
        kernel = _swap_gates(values.t())
        _assign(weight_input)(kernel[:, :in_dim])
        _assign(weight_state)(kernel[:, in_dim:])

    def get_bias() -> torch.Tensor:
        raw = bias.clone()
        raw[forget] -= 1.0 - lstm.forget_bias
        return _swap_gates(raw)

    def set_bias(values: torch.Tensor) -> None:
        _assign(bias)(_swap_gates(values))
        bias[forget] += 1.0 - lstm.forget_bias

    kernel_shape = (in_dim + weight_state.size(1), 4 * lstm.dim)
    yield _Dataset(f"{name}/W_0", kernel_shape, get_kernel, set_kernel)
    yield _Dataset(f"{name}/B", (4 * lstm.dim,), get_bias, set_bias)
    if lstm.state_projection is not None:
        yield _part(f"{name}/W_P_0", lstm.state_projection.weight, _transpose)


def datasets(model: Union[BiLm, CharacterEncoder]) -> Iterator[_Dataset]:
    """
    bilm-tf's weights.hdf5 (`dump_weights`), dataset by dataset.
    """
    token_layer = model.token_layer if isinstance(model, BiLm) else model
    if isinstance(token_layer, CharacterEncoder):
        yield from _character_datasets(token_layer)
    else:
        yield _part("embedding", token_layer.weight)
    if isinstance(model, BiLm):
        yield from _direction_datasets(model)


def _direction_datasets(bilm: BiLm) -> Iterator[_Dataset]:
    for number, direction in enumerate(bilm.options.directions):
        for layer in range(bilm.options.n_layers):
            yield from _lstm_datasets(
                bilm.lstm.layer(direction, layer),
                f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell",
            )


def shapes_of(options: BiLmOptions) -> Iterator[Tuple[str, Tuple[int, ...]]]:
    """
    Yield name and shape of each dataset that a model of these options has in weights.hdf5, in the
    order of `datasets`. Nothing is allocated, so that files can be compared with them first.
    """
    char_cnn, dim = options.char_cnn, options.projection_dim
    if char_cnn is None:
        yield "embedding", (options.n_tokens_vocab or 0, dim)
    else:
        n_filters, embedding_dim = char_cnn.n_filters, char_cnn.embedding_dim
        yield "char_embed", (N_CHARACTERS - 1, embedding_dim)
        for i, (width, number) in enumerate(char_cnn.filters):
            yield f"CNN/W_cnn_{i}", (1, width, embedding_dim, number)
            yield f"CNN/b_cnn_{i}", (number,)
        for i in range(char_cnn.n_highway):
            for gate in ("transform", "carry"):
                yield f"CNN_high_{i}/W_{gate}", (n_filters, n_filters)
                yield f"CNN_high_{i}/b_{gate}", (n_filters,)
        if _or_default(options.project_characters, n_filters != dim):
            yield "CNN_proj/W_proj", (n_filters, dim)
            yield "CNN_proj/b_proj", (dim,)
    for number in range(len(options.directions)):
        for layer in range(options.n_layers):
            cell = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            yield f"{cell}/W_0", (2 * dim, 4 * options.lstm_dim)
            yield f"{cell}/B", (4 * options.lstm_dim,)
            if _or_default(options.project_lstm, options.lstm_dim != dim):
                yield f"{cell}/W_P_0", (options.lstm_dim, dim)


def _or_default(value: Optional[bool], default: bool) -> bool:
    return default if value is None else value


def check_size(options: BiLmOptions, n_stored: int, n_others: int, source: str) -> None:
    """
    Check, before a model of these options is made, that a file has as many numbers as it needs.

    # Parameters

    options : `BiLmOptions`
    n_stored : `int`
        The numbers in the file.
    n_others : `int`
        Numbers that are needed beside those of the biLM, such as a softmax's.
    source : `str`
        What the error calls the file.

    # Raises

    `ValueError`
    """
    total = n_others
    for _, shape in shapes_of(options):
        total += math.prod(shape)
        if total > n_stored:
            raise ValueError(
                f"{source}: has {n_stored:,} numbers, fewer than the options ask for; are they "
                "those of this model?"
            )


def match_weight_file(options: BiLmOptions, path: Path, encoder_only: bool = False) -> BiLmOptions:
    """
    Complete options by a weight file, and check that they belong together, so that a model of them
    can be made: it takes no more memory than the file's size allows.

    # Parameters

    options : `BiLmOptions`
    path : `str`
        The HDF5 file.
    encoder_only : `bool`, optional (default = `False`)
        Whether only the character encoder is needed.

    # Returns

    `BiLmOptions`
        `options` with what a weights.hdf5 knows better: whether there is a backward direction,
        which the published options.json don't say, and which projections there are.

    # Raises

    `FileNotFoundError`, or `ValueError` as `read_weights`.
    """
    with open_weight_file(path) as weight_file:
        options = replace(
            options,
            bidirectional="RNN_1" in weight_file,
            project_lstm="RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0" in weight_file,
            project_characters="CNN_proj" in weight_file,
        )
        for name, shape in shapes_of(options):
            if not (encoder_only and name.startswith("RNN_")):
                _stored(weight_file, name, shape, path)
    return options


def _stored(weight_file: Any, name: str, shape: Tuple[int, ...], path: Path) -> Any:
    """
    The dataset of this name and shape.
    """
    stored = weight_file.get(name)
    if not hasattr(stored, "shape"):
        raise ValueError(
            f"{path}: the dataset {name!r} is missing; is this the weight file that belongs to "
            "the options?"
        )
    if not is_float(stored):
        raise ValueError(
            f"{path}: the dataset {name!r} is not of floating-point numbers; is this a weight file?"
        )
    if stored.shape != shape:
        raise ValueError(
            f"{path}: the dataset {name!r} has shape {stored.shape}, but the options ask for "
            f"{shape}; is this the weight file that belongs to them?"
        )
    return stored


def read_weights(path: Path, model: Union[BiLm, CharacterEncoder]) -> None:
    """
    Fills a biLM, or its character encoder alone, from a weights.hdf5 in the published layout, which
    bilm-tf and AllenNLP share.

    # Parameters

    path : `str`
        The HDF5 file.
    model : `BiLm` or `CharacterEncoder`
        Built from the options that belong to the file. Nothing is changed unless the whole file
        fits.

    # Raises

    `FileNotFoundError`, or `ValueError` that names the file and what is wrong with it: no HDF5 or
    cut off, a dataset missing or of another shape, a value that is not finite.
    """
    pending = []
    with open_weight_file(path) as weight_file:
        _refuse_more_parts(weight_file, model, path)
        for dataset in datasets(model):
            stored = _stored(weight_file, dataset.name, dataset.shape, path)
            values = torch.from_numpy(read_floats(stored, path))
            if not bool(torch.isfinite(values).all()):
                raise ValueError(
                    f"{path}: the dataset {dataset.name!r} has values not finite (NaN or "
                    "infinity); get the file again, or export the model again"
                )
            pending.append((dataset, values))
    for dataset, values in pending:
        dataset.set(values)


def _refuse_more_parts(weight_file: Any, model: Union[BiLm, CharacterEncoder], path: Path) -> None:
    """
    Raises a `ValueError` if the file has layers or filters beyond those of the options, which would
    be left out in silence.
    """
    parts = []
    token_layer = model.token_layer if isinstance(model, BiLm) else model
    if isinstance(token_layer, CharacterEncoder):
        parts += [
            ("CNN_high_{}", token_layer.options.n_highway, "char_cnn.n_highway"),
            ("CNN/W_cnn_{}", len(token_layer.options.filters), "char_cnn.filters"),
        ]
    if isinstance(model, BiLm):
        parts.append(("RNN_0/RNN/MultiRNNCell/Cell{}", model.options.n_layers, "lstm.n_layers"))
    for name, number, key in parts:
        if name.format(number) in weight_file:
            raise ValueError(
                f'{path}: has {name.format(number)!r}, but the options ("{key}") end at {number} '
                "of these; is this the weight file that belongs to them?"
            )


def write_weights(path: Path, bilm: BiLm) -> None:
    """
    Writes a biLM as weights.hdf5 in the published layout, whole or not at all. bilm-tf and AllenNLP
    read it to the same numbers.

    # Parameters

    path : `str`
        The HDF5 file.
    bilm : `BiLm`
        The model.
    """
    _write(path, ((dataset.name, dataset.get()) for dataset in datasets(bilm)))


def write_softmax(path: Path, softmax: Softmax) -> None:
    """
    Writes the output layer, which weights.hdf5 has no place for: `softmax/W`, shape `(n_words,
    dim)`, and `softmax/b`, shape `(n_words,)`, as bilm-tf's checkpoints name them.

    # Parameters

    path : `str`
        The HDF5 file.
    softmax : `Softmax`
        The output layer.
    """
    _write(path, [("softmax/W", softmax.weight), ("softmax/b", softmax.bias)])


def _write(path: Path, datasets: Iterable[Tuple[str, torch.Tensor]]) -> None:
    import h5py

    with (
        whole_file(path) as staged,
        LateErrorFile(staged) as file,
        h5py.File(file, "w") as weight_file,
    ):
        for name, tensor in datasets:
            values = tensor.detach().cpu().float().contiguous().numpy()
            weight_file.create_dataset(name, data=values)
