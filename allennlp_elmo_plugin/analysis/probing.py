"""The probes of all layers of an ELMo, trained and scored."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy

from allennlp_elmo_plugin.analysis.labelled_text import Example, LabelledSentence
from allennlp_elmo_plugin.analysis.probes import Array, ProbeTask, labels_by_key
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.progress import progress_bar

_SENTENCES_AT_ONCE = 1024  # of the test set, whose vectors are in memory


def representations(n_layers: int, directions: Sequence[str]) -> list[dict[str, Any]]:
    """Return the name, layer and direction of what to probe: LSTM layers also by direction."""
    found: list[dict[str, Any]] = [{"name": "token layer", "layer": 0, "direction": "both"}]
    for layer in range(1, n_layers):
        found.append({"name": f"LSTM {layer}", "layer": layer, "direction": "both"})
        for each in directions if len(directions) > 1 else []:
            found.append({"name": f"LSTM {layer}, {each}", "layer": layer, "direction": each})
    return found


def run(
    task: ProbeTask,
    embedder: ElmoEmbedder,
    train: list[LabelledSentence],
    test: list[LabelledSentence],
) -> dict[str, Any]:
    """
    Train a probe of each layer, and return the number of examples and the accuracies in percent,
    by group: of all examples, of those whose key has several labels in training (`ambiguous`), and
    of those whose key is not there (`unseen`).
    """
    bilm = embedder.elmo_bilm
    size = bilm.options.projection_dim
    columns = {"forward": slice(0, size), "backward": slice(size, None), "both": slice(None)}
    probed = representations(bilm.num_layers, bilm.options.directions)
    examples = [example for sentence in train for example in sentence.examples]
    labels = labels_by_key(examples)
    vectors = numpy.concatenate([found for _, found in _vectors(embedder, train, "vectors")], 1)
    probes = []
    with progress_bar(total=len(probed), unit="probe", desc="training") as bar:
        for each in probed:
            of_probe = vectors[each["layer"], :, columns[each["direction"]]]
            probes.append(task.probe(of_probe, examples))
            bar.update()
    del vectors, of_probe

    right = []  # in each part of the test set, of the baseline and each probe
    of_sentences = _vectors(embedder, test, "test")
    while some := list(itertools.islice(of_sentences, _SENTENCES_AT_ONCE)):
        tested = [example for of_sentence, _ in some for example in of_sentence]
        found = numpy.concatenate([of_sentence for _, of_sentence in some], axis=1)
        predicted = [[labels.get(example.key, labels[None])[0] for example in tested]]
        for each, probe in zip(probed, probes):
            of_probe = found[each["layer"], :, columns[each["direction"]]]
            predicted.append(probe.predict(of_probe, tested))
        right.append(numpy.array(predicted) == [example.label for example in tested])
    keys = [example.key for sentence in test for example in sentence.examples]
    n_labels = numpy.array([len(labels.get(key, ())) for key in keys])
    groups = {"all": n_labels >= 0, "ambiguous": n_labels > 1, "unseen": n_labels == 0}
    of_baseline, *of_probes = (
        {name: 100 * float(row[g].mean()) if g.any() else None for name, g in groups.items()}
        for row in numpy.concatenate(right, axis=1)
    )
    return {
        "n_train": len(examples),
        "n_test": {name: int(group.sum()) for name, group in groups.items()},
        "n_labels": len(labels[None]),
        "baseline": of_baseline,
        "layers": [{**each, "accuracy": found} for each, found in zip(probed, of_probes)],
    }


def _vectors(
    embedder: ElmoEmbedder, sentences: Sequence[LabelledSentence], title: str
) -> Iterator[tuple[list[Example], Array]]:
    """Yield the examples of each sentence and their vectors, shape `(layers, n_examples, dim)`."""
    words = (sentence.words for sentence in sentences)
    with progress_bar(total=len(sentences), unit="sentence", desc=title) as bar:
        for sentence, layers in zip(sentences, embedder.embed_sentences(words)):
            yield sentence.examples, layers[:, [example.position for example in sentence.examples]]
            bar.update()
