"""Random language models in the published layout, for tests that need one of a given shape."""

import json
from os import PathLike
from pathlib import Path
from typing import Any, Dict, Sequence, Tuple, Union

import h5py
import numpy as np


def write_random_elmo(
    directory: Union[str, "PathLike[str]"],
    *,
    seed: int = 0,
    lstm_dim: int = 16,
    projection_dim: int = 8,
    n_layers: int = 2,
    filters: Sequence[Tuple[int, int]] = ((1, 4), (2, 6), (3, 8)),
    n_highway: int = 1,
    activation: str = "relu",
    char_dim: int = 4,
    cell_clip: float = 3.0,
    proj_clip: float = 3.0,
    recurrent_scale: float = 0.4,
) -> Tuple[str, str]:
    """
    Write `options.json` and `weights.hdf5` of a random language model.

    The recurrent weights are contractive: an error of rounding shrinks from step to step, so two
    implementations can be compared to 1e-5 after any number of steps. The inputs' weights are large
    enough for the gates to work over their whole range.

    # Parameters

    directory : `PathLike`
        Existing folder, which gets the two files.
    seed : `int`, optional
        Seed of the weights.
    lstm_dim, projection_dim, n_layers, cell_clip, proj_clip : optional
        The `lstm` part of the options: `dim` and the keys of the same names.
    filters, n_highway, activation, char_dim : optional
        The `char_cnn` part of the options; `char_dim` is the `dim` of its `embedding`.
    recurrent_scale : `float`, optional
        About the norm of the recurrent matrices.

    # Returns

    `Tuple[str, str]`
        The paths of the options and of the weights.
    """
    directory = Path(directory)
    rng = np.random.RandomState(seed)

    def normal(*shape: int, scale: float) -> "np.ndarray[Any, Any]":
        return (rng.standard_normal(shape) * scale).astype("float32")

    options: Dict[str, Any] = {
        "bidirectional": True,
        "char_cnn": {
            "activation": activation,
            "embedding": {"dim": char_dim},
            "filters": [list(item) for item in filters],
            "max_characters_per_token": 50,
            "n_characters": 262,
            "n_highway": n_highway,
        },
        "lstm": {
            "cell_clip": cell_clip,
            "dim": lstm_dim,
            "n_layers": n_layers,
            "proj_clip": proj_clip,
            "projection_dim": projection_dim,
            "use_skip_connections": True,
        },
    }
    options_file = directory / "options.json"
    options_file.write_text(json.dumps(options), encoding="utf-8")

    n_filters = sum(n for _, n in filters)
    weight_file = directory / "weights.hdf5"
    with h5py.File(weight_file, "w") as file:
        file["char_embed"] = normal(261, char_dim, scale=1.0)
        for i, (width, n) in enumerate(filters):
            scale = (width * char_dim) ** -0.5
            file[f"CNN/W_cnn_{i}"] = normal(1, width, char_dim, n, scale=scale)
            file[f"CNN/b_cnn_{i}"] = normal(n, scale=0.1)
        for i in range(n_highway):
            for gate, bias in (("carry", -2.0), ("transform", 0.0)):
                scale = n_filters**-0.5
                file[f"CNN_high_{i}/W_{gate}"] = normal(n_filters, n_filters, scale=scale)
                file[f"CNN_high_{i}/b_{gate}"] = bias + normal(n_filters, scale=0.1)
        file["CNN_proj/W_proj"] = normal(n_filters, projection_dim, scale=n_filters**-0.5)
        file["CNN_proj/b_proj"] = normal(projection_dim, scale=0.1)
        for direction in range(2):
            for layer in range(n_layers):
                group = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
                # The input's rows lie over the recurrent rows.
                kernel = np.concatenate(
                    [
                        normal(projection_dim, 4 * lstm_dim, scale=2 * projection_dim**-0.5),
                        # A normal matrix (p, 4d) has a norm of about sqrt(p) + sqrt(4d).
                        normal(
                            projection_dim,
                            4 * lstm_dim,
                            scale=recurrent_scale / (projection_dim**0.5 + (4 * lstm_dim) ** 0.5),
                        ),
                    ]
                )
                file[f"{group}/W_0"] = kernel
                file[f"{group}/B"] = normal(4 * lstm_dim, scale=0.1)
                file[f"{group}/W_P_0"] = normal(lstm_dim, projection_dim, scale=lstm_dim**-0.5)
    return str(options_file), str(weight_file)


def read_arrays(path: Union[str, "PathLike[str]"]) -> Dict[str, "np.ndarray[Any, Any]"]:
    """All datasets of an HDF5 file by their full names."""
    arrays: Dict[str, Any] = {}

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[...]

    with h5py.File(path, "r") as file:
        file.visititems(add)
    return arrays


def read_files(folder: Union[str, "PathLike[str]"], *leave_out: str) -> Dict[str, bytes]:
    """The bytes of all files in a folder, by their paths there, but for some."""
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }
    return {name: content for name, content in files.items() if name not in leave_out}
