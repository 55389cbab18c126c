"""The probes of all layers of an ELMo, trained and scored."""

from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy
from more_itertools import chunked

from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.probing.labelled_text import Example, LabelledSentence
from allennlp_elmo_plugin.probing.probes import Array, MostFrequentLabel, ProbeTask
from allennlp_elmo_plugin.progress import progress_bar

_SENTENCES_AT_ONCE = 1024  # of the test set, whose vectors are in memory

ALL, AMBIGUOUS, UNSEEN = ("all", "ambiguous", "unseen")


class Representation(NamedTuple):
    """Vectors to probe: a layer (0 is the token layer), and one of its directions or both."""

    name: str
    layer: int
    direction: str
    columns: slice


def representations(n_layers: int, directions: Sequence[str], dim: int) -> List[Representation]:
    """Return what to probe: each layer as a whole and, except the token layer, its directions."""
    size = dim // len(directions)
    found = [Representation("token layer", 0, "both", slice(0, size))]
    for layer in range(1, n_layers):
        found.append(Representation(f"LSTM {layer}", layer, "both", slice(0, dim)))
        for i, direction in enumerate(directions if len(directions) > 1 else ()):
            columns = slice(i * size, (i + 1) * size)
            found.append(Representation(f"LSTM {layer}, {direction}", layer, direction, columns))
    return found


def run(
    task: ProbeTask,
    embedder: ElmoEmbedder,
    train: List[LabelledSentence],
    test: List[LabelledSentence],
) -> Dict[str, Any]:
    """
    Train a probe of each layer, and score all of them: return `n_train` and `n_test` (examples),
    `n_labels`, `baseline` and `layers`, a list with each one's `name`, `layer`, `direction` and
    `accuracy`. Accuracies, in percent, and `n_test` are by group: all examples, those whose key has
    several labels in training (`ambiguous`), and those whose key is not there (`unseen`).
    """
    examples = [example for sentence in train for example in sentence.examples]
    labels = {example.label for example in examples}
    bilm = embedder.elmo_bilm
    probed = representations(bilm.num_layers, bilm.options.directions, bilm.get_output_dim())
    vectors = numpy.concatenate([found for _, found in _vectors(embedder, train, "vectors")], 1)
    baseline = MostFrequentLabel(examples)
    with progress_bar(total=len(probed), unit="probe", desc="training") as bar:
        probes = []
        for each in probed:
            probes.append(task.probe(vectors[each.layer, :, each.columns], examples, baseline))
            bar.update()
    del vectors

    right = []  # in each part of the test set, of the baseline and each probe
    for part in chunked(_vectors(embedder, test, "test"), _SENTENCES_AT_ONCE):
        tested = [example for some, _ in part for example in some]
        found = numpy.concatenate([some for _, some in part], axis=1)
        predicted = [[baseline.predict(example) for example in tested]]
        for each, probe in zip(probed, probes):
            predicted.append(probe.predict(found[each.layer, :, each.columns], tested))
        right.append(numpy.array(predicted) == [example.label for example in tested])
    keys = [example.key for sentence in test for example in sentence.examples]
    n_labels = numpy.array([len(baseline.labels.get(key, ())) for key in keys])
    groups = {ALL: n_labels >= 0, AMBIGUOUS: n_labels > 1, UNSEEN: n_labels == 0}
    accuracies = [
        {
            name: 100 * float(row[group].mean()) if group.any() else None
            for name, group in groups.items()
        }
        for row in numpy.concatenate(right, axis=1)
    ]
    layers = [
        {"name": each.name, "layer": each.layer, "direction": each.direction, "accuracy": accuracy}
        for each, accuracy in zip(probed, accuracies[1:])
    ]
    return {
        "n_train": len(examples),
        "n_test": {name: int(group.sum()) for name, group in groups.items()},
        "n_labels": len(labels),
        "baseline": accuracies[0],
        "layers": layers,
    }


def _vectors(
    embedder: ElmoEmbedder, sentences: Sequence[LabelledSentence], title: str
) -> Iterator[Tuple[List[Example], Array]]:
    """Yield the examples of each sentence and their vectors, shape `(layers, n_examples, dim)`."""
    words = (sentence.words for sentence in sentences)
    with progress_bar(total=len(sentences), unit="sentence", desc=title) as bar:
        for sentence, layers in zip(sentences, embedder.embed_sentences(words)):
            yield sentence.examples, layers[:, [example.position for example in sentence.examples]]
            bar.update()
