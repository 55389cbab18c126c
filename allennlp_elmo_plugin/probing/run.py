"""The probes of all layers of an ELMo, trained and scored."""

from collections import Counter
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import lazy_groups_of

from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.probing.labelled_text import Example, LabelledSentence
from allennlp_elmo_plugin.probing.probes import Array, MostFrequentLabel, Probe
from allennlp_elmo_plugin.probing.task import ProbeTask
from allennlp_elmo_plugin.progress import progress_bar

_BATCH_SIZE = 64
_SENTENCES_AT_ONCE = 1024
"""Sentences of the test set whose vectors are in memory."""

ALL, AMBIGUOUS, UNSEEN = "all", "ambiguous", "unseen"


class Representation(NamedTuple):
    """Vectors to probe: a layer (0 is the token layer), and one of its directions or both."""

    layer: int
    direction: str
    columns: slice

    @property
    def name(self) -> str:
        layer = f"LSTM {self.layer}" if self.layer else "token layer"
        return layer if self.direction == "both" else f"{layer}, {self.direction}"


def representations(n_layers: int, directions: Sequence[str], dim: int) -> List[Representation]:
    """
    Return what to probe of an ELMo with `n_layers` layers, the token layer counted, of `dim`
    numbers: each layer as a whole, then each direction of it. The directions of the token layer are
    the same, and probed once.
    """
    size = dim // len(directions)
    parts = [slice(i * size, (i + 1) * size) for i in range(len(directions))]
    found = [Representation(0, "both", parts[0])]
    for layer in range(1, n_layers):
        found.append(Representation(layer, "both", slice(0, dim)))
        if len(directions) > 1:
            found += [Representation(layer, *each) for each in zip(directions, parts)]
    return found


def groups_of(example: Example, baseline: MostFrequentLabel) -> List[str]:
    """
    Return the groups in which an example counts: all, and those whose key has several labels in
    training, or is not there.
    """
    n_labels = len(baseline.labels.get(example.key, ()))
    return [ALL, *([AMBIGUOUS] if n_labels > 1 else []), *([UNSEEN] if n_labels == 0 else [])]


def run(
    task: ProbeTask,
    embedder: ElmoEmbedder,
    train: List[LabelledSentence],
    test: List[LabelledSentence],
) -> Dict[str, Any]:
    """
    Train a probe of each layer, and score all of them.

    The vectors of all training examples are in memory, 4 bytes a number, up to as much again while
    a probe is trained, and the vectors of a part of the test set.

    # Returns

    `Dict[str, Any]`
        `n_train` and `n_test` (examples, the latter by group: see `groups_of`), `n_labels`,
        `baseline` (accuracy in percent by group; `null` for an empty group) and `layers`, a list:
        each with `name`, `layer`, `direction`, `accuracy` by group.
    """
    examples = [example for sentence in train for example in sentence.examples]
    n_labels = len({example.label for example in examples})
    if n_labels < 2:
        raise ConfigurationError(
            f"all {task.label}s of the training data are {examples[0].label!r}; there must be at "
            "least two to tell apart. --columns says which columns to read"
        )
    bilm = embedder.elmo_bilm
    dim = bilm.get_output_dim()
    probed = representations(bilm.num_layers, bilm.options.directions, dim)
    vectors = numpy.empty((bilm.num_layers, len(examples), dim), "float32")
    n_done = 0
    with progress_bar(total=len(train), unit="sentence", desc="vectors") as bar:
        for _, found in _vectors(embedder, train, bar.update):
            vectors[:, n_done : n_done + found.shape[1]] = found
            n_done += found.shape[1]
    baseline = MostFrequentLabel(examples)
    probes: List[Probe] = []
    with progress_bar(total=len(probed), unit="probe", desc="training") as bar:
        for each in probed:
            part = vectors[each.layer, :, each.columns]
            probes.append(task.probe(part, examples, baseline))
            bar.update()
    del vectors, part

    totals: Counter = Counter()
    right: List[Counter] = [Counter() for _ in range(1 + len(probed))]
    with progress_bar(total=len(test), unit="sentence", desc="test") as bar:
        for sentences in lazy_groups_of(test, _SENTENCES_AT_ONCE):
            batches = list(_vectors(embedder, sentences, bar.update))
            examples = [example for some, _ in batches for example in some]
            found = numpy.concatenate([vectors for _, vectors in batches], axis=1)
            groups = [groups_of(example, baseline) for example in examples]
            for names in groups:
                totals.update(names)
            predictions = [[baseline.predict(example) for example in examples]]
            for each, probe in zip(probed, probes):
                predictions.append(probe.predict(found[each.layer, :, each.columns], examples))
            for count, labels in zip(right, predictions):
                for label, example, names in zip(labels, examples, groups):
                    if label == example.label:
                        count.update(names)
    accuracies = [
        {
            name: 100 * count[name] / totals[name] if totals[name] else None
            for name in (ALL, AMBIGUOUS, UNSEEN)
        }
        for count in right
    ]
    return {
        "n_train": n_done,
        "n_test": {name: totals[name] for name in (ALL, AMBIGUOUS, UNSEEN)},
        "n_labels": n_labels,
        "baseline": accuracies[0],
        "layers": [
            {
                "name": each.name,
                "layer": each.layer,
                "direction": each.direction,
                "accuracy": accuracy,
            }
            for each, accuracy in zip(probed, accuracies[1:])
        ],
    }


def _vectors(
    embedder: ElmoEmbedder, sentences: Sequence[LabelledSentence], update: Callable[[int], Any]
) -> Iterator[Tuple[List[Example], Array]]:
    """Yield the examples of each sentence and their vectors, shape `(layers, n_examples, dim)`."""
    words = (sentence.words for sentence in sentences)
    for sentence, layers in zip(sentences, embedder.embed_sentences(words, _BATCH_SIZE)):
        yield sentence.examples, layers[:, [example.position for example in sentence.examples]]
        update(1)
