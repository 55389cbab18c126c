"""What a probe can look for in the vectors."""

from dataclasses import dataclass
from typing import Callable, Dict, Sequence, Tuple

from allennlp_elmo_plugin.probing.labelled_text import Example
from allennlp_elmo_plugin.probing.probes import (
    Array,
    LinearProbe,
    MostFrequentLabel,
    NearestSense,
    Probe,
)


@dataclass(frozen=True)
class ProbeTask:
    """
    A kind of labels, and how to predict them.

    # Parameters

    label, key : `str`
        What they are called in tables.
    column_names : `Tuple[str, ...]`
        What the columns are that `--columns` names.
    columns : `Tuple[int, ...]`
        Their default numbers, from 1.
    probe : `Callable`
        Trains a probe on vectors and their examples.
    paper : `Dict[str, float]`
        The results of Peters et al. (2018) in percent: of LSTM layers by their number, `"1"` and
        `"2"`, and of the `"baseline"` if it has one.
    paper_table : `str`
        Where they are from.
    """

    label: str
    key: str
    column_names: Tuple[str, ...]
    columns: Tuple[int, ...]
    probe: Callable[[Array, Sequence[Example], MostFrequentLabel], Probe]
    paper: Dict[str, float]
    paper_table: str

    def columns_of_example(self, columns: Sequence[int]) -> Tuple[int, ...]:
        """Return the columns of word, key and label. If only two are given, the key is the word."""
        return (columns[0], *columns[-2:])


TASKS: Dict[str, ProbeTask] = {
    "pos": ProbeTask(
        "tag",
        "word",
        ("word", "tag"),
        (1, 2),
        LinearProbe,
        {"1": 97.3, "2": 96.8},
        "table 6 (accuracy, Penn Treebank)",
    ),
    "wsd": ProbeTask(
        "sense",
        "lemma",
        ("word", "lemma", "sense"),
        (4, 7, 8),
        NearestSense,
        {"baseline": 65.9, "1": 67.4, "2": 69.0},
        "table 5 (F1 of the nearest mean vector, trained on SemCor; the baseline is WordNet's "
        "first sense)",
    ),
}
