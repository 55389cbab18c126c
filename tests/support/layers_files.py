"""Texts to embed, and comparisons of the files of their layers."""

import random

import numpy as np

from tests.support.testing import read_arrays


def make_text(n_lines, seed=0):
    """Return lines of words that are hard to keep apart or to spell, some of them empty."""
    rng = random.Random(seed)
    words = ["the", "mill", "naïve", "a/b", "x" * 60, "\u00a0", "ﬁsh", ".", "<S>", "日本"]
    lines = [" ".join(rng.choices(words, k=rng.randrange(12))) for _ in range(n_lines)]
    return "\n".join([*lines, "the mill .", "", "the mill ."])


def assert_same_files(path, other):
    """Compare two HDF5 files, dataset by dataset, to the bit."""
    arrays, other_arrays = read_arrays(path), read_arrays(other)
    np.testing.assert_equal(arrays, other_arrays)
    assert all(arrays[key].dtype == other_arrays[key].dtype for key in arrays)
