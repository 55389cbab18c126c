"""What each layer of an ELMo knows: classifiers of its vectors, a table and a picture."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from allennlp_elmo_plugin.analysis.figures import figure
from allennlp_elmo_plugin.analysis.labelled_text import Example, LabelledSentence
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.files.markdown import markdown_table
from allennlp_elmo_plugin.progress import progress_bar

SENTENCES_AT_ONCE = 1024  # of the test set, whose vectors are in memory
_VARIANCE = 1 - 1e-6  # the share that is whitened; the rest is rounding


def labels_by_key(examples: Sequence[Example]) -> dict[str | None, list[str]]:
    """Return the labels of each key and, under `None`, of all keys, the most frequent first."""
    counts: dict[str | None, Counter] = {None: Counter()}
    for _, key, label in examples:
        counts[None][label] += 1
        counts.setdefault(key, Counter())[label] += 1
    return {key: [label for label, _ in counts[key].most_common()] for key in counts}


class LinearProbe:
    """
    Logistic regression from the vectors of examples, shape `(n_examples, dim)`, to their labels.

    The vectors are whitened first: many dimensions of an ELMo are nearly the same, with which the
    regression would take thousands of steps.
    """

    def __init__(self, vectors: np.ndarray, examples: Sequence[Example]) -> None:
        from sklearn.decomposition import PCA  # slow to import
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        whitening = PCA(_VARIANCE, whiten=True, svd_solver="covariance_eigh")
        self._classifier = make_pipeline(whitening, LogisticRegression(C=0.1, max_iter=5_000))
        self._classifier.fit(vectors, [example.label for example in examples])

    def predict(self, vectors: np.ndarray, examples: Sequence[Example]) -> list[str]:
        return list(self._classifier.predict(vectors))


class NearestSense:
    """
    Of the labels of a key, the one whose mean vector in training is nearest by cosine (Peters et
    al. 2018, section 5.3). For a new key, the most frequent label of all.
    """

    def __init__(self, vectors: np.ndarray, examples: Sequence[Example]) -> None:
        self._labels = labels_by_key(examples)
        rows: dict[tuple[str, str], list[int]] = {}
        for row, (_, key, label) in enumerate(examples):
            rows.setdefault((key, label), []).append(row)
        means = {sense: vectors[rows[sense]].mean(0) for sense in rows}
        self._means = {sense: mean / np.linalg.norm(mean) for sense, mean in means.items()}

    def predict(self, vectors: np.ndarray, examples: Sequence[Example]) -> list[str]:
        predicted = []
        for vector, (_, key, _) in zip(vectors, examples):
            nearest = self._labels[None][0]
            if key in self._labels:
                nearest = max(self._labels[key], key=lambda label: self._means[key, label] @ vector)
            predicted.append(nearest)
        return predicted


class ProbeTask(NamedTuple):
    """
    A kind of labels, the default columns of the word, the key and the label, the probe, and the
    results of Peters et al. (2018) in percent, of LSTM layers by their number and of the baseline.
    """

    label: str
    key: str
    columns: tuple[int, ...]
    probe: type[LinearProbe | NearestSense]
    paper: dict[str, float]


# Of tables 6 and 5. The paper's baseline for senses is the first one in WordNet.
TASKS = {
    "pos": ProbeTask("tag", "word", (1, 2), LinearProbe, {"1": 97.3, "2": 96.8}),
    "wsd": ProbeTask(
        "sense", "lemma", (4, 7, 8), NearestSense, {"baseline": 65.9, "1": 67.4, "2": 69.0}
    ),
}


def representations(n_layers: int, directions: Sequence[str]) -> list[dict[str, Any]]:
    """Return the name, layer and direction of what to probe: LSTM layers also by direction."""
    rows: list[dict[str, Any]] = [{"name": "token layer", "layer": 0, "direction": "both"}]
    for layer in range(1, n_layers):
        rows.append({"name": f"LSTM {layer}", "layer": layer, "direction": "both"})
        for each in directions if len(directions) > 1 else []:
            rows.append({"name": f"LSTM {layer}, {each}", "layer": layer, "direction": each})
    return rows


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
    rows = representations(bilm.num_layers, bilm.options.directions)

    def inputs(vectors: np.ndarray) -> list[np.ndarray]:
        """Return what each probe reads of vectors, shape `(layers, n_examples, dim)`."""
        return [vectors[row["layer"], :, columns[row["direction"]]] for row in rows]

    examples = [example for sentence in train for example in sentence.examples]
    labels = labels_by_key(examples)
    is_linear = task.probe is LinearProbe
    if is_linear and len(labels[None]) < 2:
        raise ValueError(
            f"all {len(examples):,} examples of training have the label {labels[None][0]!r}; see "
            "--columns, --train and --max-examples"
        )
    vectors = np.concatenate([each for _, each in _vectors(embedder, train)], 1)
    probes = []
    with progress_bar(total=len(rows), unit="probe", desc="training") as bar:
        for part in inputs(vectors):
            probes.append(task.probe(part, examples))
            bar.update()
    del vectors, part

    is_right = []  # for each part of the test set, of the baseline and of each probe
    embedded = _vectors(embedder, test)
    while sentences := list(itertools.islice(embedded, SENTENCES_AT_ONCE)):
        tested = [example for of_sentence, _ in sentences for example in of_sentence]
        vectors = np.concatenate([each for _, each in sentences], axis=1)
        predicted = [[labels.get(example.key, labels[None])[0] for example in tested]]
        predicted += [probe.predict(part, tested) for probe, part in zip(probes, inputs(vectors))]
        is_right.append(np.array(predicted) == [example.label for example in tested])
    keys = [example.key for sentence in test for example in sentence.examples]
    n_labels = np.array([len(labels.get(key, ())) for key in keys])
    groups = {"all": n_labels >= 0, "ambiguous": n_labels > 1, "unseen": n_labels == 0}
    baseline, *accuracies = (
        {name: 100 * float(row[g].mean()) if g.any() else None for name, g in groups.items()}
        for row in np.concatenate(is_right, axis=1)
    )
    return {
        "n_train": len(examples),
        "n_test": {name: int(group.sum()) for name, group in groups.items()},
        # Senses are labels of a key.
        "n_labels": sum(len(labels[key]) for key in labels if (key is None) == is_linear),
        "baseline": baseline,
        "layers": [{**row, "accuracy": each} for row, each in zip(rows, accuracies)],
    }


def _vectors(
    embedder: ElmoEmbedder, sentences: Sequence[LabelledSentence]
) -> Iterator[tuple[list[Example], np.ndarray]]:
    """Yield the examples of each sentence and their vectors, shape `(layers, n_examples, dim)`."""
    arrays = embedder.embed_sentences([sentence.words for sentence in sentences])
    for (_, examples), layers in zip(sentences, arrays):
        yield examples, layers[:, [example.position for example in examples]]


def markdown(results: dict[str, Any]) -> str:
    """Return the results as a table, with a line below that explains it."""
    task = TASKS[results["task"]]
    header = ["", *(f"{name} ({number:,})" for name, number in results["n_test"].items()), "paper"]
    named = [(f"most frequent {task.label} of the {task.key}", results["baseline"], "baseline")]
    for row in results["layers"]:
        key = str(row["layer"]) if row["direction"] == "both" else ""
        named.append((row["name"], row["accuracy"], key))
    rows = []
    for name, accuracies, key in named:
        cells = ["" if value is None else f"{value:.2f}" for value in accuracies.values()]
        rows.append([name, *cells, f"{task.paper[key]:.1f}" if key in task.paper else ""])
    return (
        f"{markdown_table(header, rows)}\n\n"
        f"Accuracy in percent on the {task.label}s of the test set: all, those of {task.key}s with "
        f"several {task.label}s in training, and of {task.key}s that are new. "
        f"{results['n_train']:,} examples to train, with {results['n_labels']:,} {task.label}s. "
        "Paper: Peters et al. (2018), tables 5 (wsd) and 6 (pos), of another ELMo and data.\n"
    )


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the accuracy of each layer and direction, with that of the paper beside it."""
    task, layers = TASKS[results["task"]], results["layers"]
    with figure(path, 5, 4.5) as axes:
        for direction, style in (("both", "o-"), ("forward", ">:"), ("backward", "<:")):
            # The token layer is the same in all directions.
            rows = [row for row in layers if row["direction"] == direction or not row["layer"]]
            if len(rows) > 1:
                x, y = zip(*((row["layer"], row["accuracy"]["all"]) for row in rows))
                axes.plot(x, y, style, label=direction)
            if direction == "both":
                axes.set_xticks([row["layer"] for row in rows], [row["name"] for row in rows])
        axes.axhline(results["baseline"]["all"], color="gray", label=f"most frequent {task.label}")
        paper = [(int(layer), value) for layer, value in task.paper.items() if layer.isdigit()]
        axes.plot(*zip(*paper), "s-", color="C4", label="Peters et al. (2018)")
        axes.set(ylabel=f"{task.label}s: accuracy, %", ylim=(0, 100))
        axes.legend(fontsize="small")
