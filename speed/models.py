"""The models that are timed, with random weights."""

import os
from typing import Dict, List, NamedTuple, Tuple

import torch

from allennlp_elmo_plugin import BiLm, BiLmOptions
from allennlp_elmo_plugin.bilm.checkpoints.weights import write_weights

_FILTERS = [(1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)]


class Size(NamedTuple):
    """The parts of options.json in which the models differ."""

    lstm_dim: int
    projection_dim: int
    n_highway: int
    filters: List[Tuple[int, int]] = _FILTERS


SIZES: Dict[str, Size] = {
    "small": Size(1024, 128, 1),
    "original": Size(4096, 512, 2),
    # Of the comparison with bilm-tf.
    "small-512": Size(1024, 128, 1, _FILTERS[:5]),
    # For a quick look at whether everything runs.
    "tiny": Size(64, 16, 1, _FILTERS[:3]),
}


def write_model(size: str, folder: str) -> Tuple[str, str]:
    """Write the options.json and weights.hdf5 of a random model, and return their paths."""
    lstm_dim, projection_dim, n_highway, filters = SIZES[size]
    options = BiLmOptions.from_dict(
        {
            "lstm": {
                "dim": lstm_dim,
                "projection_dim": projection_dim,
                "n_layers": 2,
                "cell_clip": 3.0,
                "proj_clip": 3.0,
                "use_skip_connections": True,
            },
            "char_cnn": {"embedding": {"dim": 16}, "filters": filters, "n_highway": n_highway},
        }
    )
    torch.manual_seed(0)
    bilm = BiLm(options)
    files = os.path.join(folder, "options.json"), os.path.join(folder, "weights.hdf5")
    options.write(files[0])
    write_weights(files[1], bilm)
    return files
