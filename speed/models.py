"""The models that are timed, with random weights."""

from typing import Dict, NamedTuple, Sequence, Tuple

from tests.support.testing import write_random_elmo

_FILTERS = [(1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)]


class Size(NamedTuple):
    """What a language model is made of; the names are those of options.json."""

    lstm_dim: int
    projection_dim: int
    n_highway: int
    filters: Sequence[Tuple[int, int]] = _FILTERS


SIZES: Dict[str, Size] = {
    "small": Size(1024, 128, 1),
    "original": Size(4096, 512, 2),
    # Of the comparison with bilm-tf.
    "small-512": Size(1024, 128, 1, _FILTERS[:5]),
    # For a quick look at whether everything runs.
    "tiny": Size(64, 16, 1, _FILTERS[:3]),
}


def write_model(size: str, folder: str) -> Tuple[str, str]:
    """
    options.json and weights.hdf5 of a model with random weights, in which errors of rounding do not
    grow from step to step.
    """
    return write_random_elmo(folder, char_dim=16, **SIZES[size]._asdict())
