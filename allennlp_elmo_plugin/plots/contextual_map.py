"""
The map of a word: its occurrences in a text, placed by their vectors in each layer.
"""

import math
from collections import Counter
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.embedding.corpus_embedder import Embedder
from allennlp_elmo_plugin.embedding.occurrences import (
    Place,
    check_word,
    comparable,
    embed_places,
    sample_occurrences,
)
from allennlp_elmo_plugin.plots.page import write_page
from allennlp_elmo_plugin.progress import step_bar

MAX_OCCURRENCES = 2000
"""Default number of occurrences that are placed, drawn at random if there are more."""

METHODS = {"pca": "PCA", "tsne": "t-SNE"}

_MOST_GROUPS = 8
_N_FOR_TSNE = 10
_PERPLEXITY = 30  # of t-SNE: about how many neighbours count
_MOST_FOR_SILHOUETTE = 1000
_CLEARLY_HIGHER = 0.05  # of silhouettes; less is no reason for more groups

_DIGITS_OF_VECTORS = 5
"""Vectors of length 1 that are the same in these digits differ by rounding."""

_NEIGHBOURHOOD = 4
"""Words on each side of an occurrence that may describe its group."""

_N_DESCRIBING = 3
_SHORTEST = 3  # bytes; shorter words say little about a meaning. A Chinese character has three.

# Spreads of the vectors below this share of their length are rounding.
_SAME = 1e-5

Array = Any  # numpy.ndarray, whose type parameters differ between the supported versions


class ContextualMap(NamedTuple):
    """
    The occurrences of a word, grouped and placed.

    # Parameters

    word : `str`
    places : `List[Place]`
        The occurrences, in the order of the text.
    n_found : `int`
        How many there are in the text, of which these are a sample.
    method : `str`
        A key of `METHODS`.
    layers : `List[Tuple[str, Array, Optional[float]]]`
        The name of each layer, the points of the occurrences in it, shape `(places, 2)`, and the
        share of the variance that these two directions have (PCA).
    groups : `List[int]`
        The group of each occurrence, the largest first.
    names : `List[str]`
        Those of the groups.
    silhouette : `float`, optional
        How clear the groups are, at most 1; `None` for given labels and for a single group.
    has_labels : `bool`
        Whether the groups are given labels.
    """

    word: str
    places: List[Place]
    n_found: int
    method: str
    layers: List[Tuple[str, Array, Optional[float]]]
    groups: List[int]
    names: List[str]
    silhouette: Optional[float]
    has_labels: bool


def make_map(
    embedder: Embedder,
    word: str,
    sentences: Iterable[List[str]],
    method: str = "pca",
    max_occurrences: int = MAX_OCCURRENCES,
    label_of: Optional[Callable[[int], str]] = None,
    n_groups: Optional[int] = None,
) -> ContextualMap:
    """
    Place the occurrences of a word in a text.

    # Parameters

    embedder : `Embedder`
    word : `str`
        As it is written in the sentences.
    sentences : `Iterable[List[str]]`
        The tokenised sentences of the text, read once.
    method : `str`, optional (default = `"pca"`)
        A key of `METHODS`.
    max_occurrences : `int`, optional (default = `2000`)
        How many occurrences to place: if there are more, they are drawn at random, with the same
        result each time.
    label_of : `Callable[[int], str]`, optional (default = `None`)
        Called with the number of a sentence that has the word, from 0, when all were read: the
        group it belongs to. By default the groups are found by k-means in the top layer.
    n_groups : `int`, optional (default = `None`)
        How many groups to find. By default, the silhouette decides.

    # Raises

    `ConfigurationError`
        The word isn't in the text, occurs once, or there are too few occurrences for t-SNE or for
        so many groups.
    """
    check_word(word)
    least = _N_FOR_TSNE if method == "tsne" else 2
    if max_occurrences < least:
        raise ConfigurationError(f"max_occurrences is {max_occurrences}; give at least {least}")
    places, n_found = sample_occurrences(word, sentences, max_occurrences)
    if len(places) < least:
        times = "once" if n_found == 1 else f"{n_found} times"
        raise ConfigurationError(
            f"the word {word!r} occurs {times} in the text (the same sentence again doesn't "
            f"count), but {METHODS[method]} needs at least {least} occurrences; give more text"
        )
    if n_groups is not None and not 1 <= n_groups <= len(places):
        raise ConfigurationError(
            f"the number of groups is {n_groups}; {word!r} has {len(places)} occurrences, which "
            f"can be in 1 to {len(places)} groups"
        )
    vectors = embed_places(embedder, places, "all")  # (layers, places, dim)
    layers = _place(vectors, method)
    silhouette = None
    if label_of is not None:
        labels = [label_of(place.number or 0) for place in places]
        names = [name for name, _ in Counter(labels).most_common()]
        groups = [names.index(label) for label in labels]
    else:
        groups, silhouette = _group(comparable(vectors[-1]), n_groups)
        names = _describe(word, places, groups)
    return ContextualMap(
        word, places, n_found, method, layers, groups, names, silhouette, label_of is not None
    )


def _place(vectors: Array, method: str) -> List[Tuple[str, Array, Optional[float]]]:
    """
    Return the name, the points and the share of variance of each layer, each turned so that its
    points are near those of the layer above, and scaled to the same size.
    """
    found: List[Tuple[str, Array, Optional[float]]] = []
    above: Array = None
    with step_bar("placing", len(vectors), "layers") as update:
        for number in reversed(range(len(vectors))):
            points, share = _project(vectors[number], method)
            if above is not None and points.any():
                left, _, right = numpy.linalg.svd(points.T @ above)
                points = points @ (left @ right)
            if points.any():
                above = points
            name = f"LSTM layer {number}" if number else "token layer"
            found.append((name, points, share))
            update(1)
    return found[::-1]


def _project(vectors: Array, method: str) -> Tuple[Array, Optional[float]]:
    """Return points, shape `(places, 2)`, with a root mean square of 1, or all zero."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    # The mean of many equal numbers in float32 isn't theirs.
    spread = numpy.linalg.norm(vectors - vectors.mean(0, dtype="float64"))
    if spread <= _SAME * numpy.linalg.norm(vectors):
        return numpy.zeros((len(vectors), 2)), None
    vectors = comparable(vectors).astype("float64")
    share: Optional[float] = None
    if method == "tsne":
        perplexity = min(_PERPLEXITY, (len(vectors) - 1) / 3)
        model = TSNE(2, perplexity=perplexity, init="pca", learning_rate="auto", random_state=0)
        points = model.fit_transform(vectors)
    else:
        pca = PCA(2, random_state=0)
        points = pca.fit_transform(vectors)
        share = float(pca.explained_variance_ratio_.sum())
    points = points - points.mean(0)
    return points / math.sqrt((points**2).sum() / len(points)), share


def _group(vectors: Array, n_groups: Optional[int] = None) -> Tuple[List[int], Optional[float]]:
    """
    Divide vectors into groups (k-means). By default, there are two to eight groups, at most the
    root of half the number of vectors: the fewest for which no other number has a clearly higher
    silhouette. Return the group of each, the largest first, and the silhouette.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    found: List[Tuple[float, Array]] = []
    # Of vectors that are the same, such as those of repeated contexts, KMeans makes one group.
    n_different = len(numpy.unique(vectors.round(_DIGITS_OF_VECTORS), axis=0))
    most = min(
        _MOST_GROUPS, len(vectors) - 1, n_different, max(2, int(math.sqrt(len(vectors) / 2)))
    )
    sample = numpy.random.RandomState(0).permutation(len(vectors))[:_MOST_FOR_SILHOUETTE]
    numbers = range(2, most + 1) if n_groups is None else [n_groups]
    with step_bar("grouping", len(numbers), "numbers of groups") as update:
        for number in numbers:
            labels = KMeans(number, n_init=10, random_state=0).fit(vectors).labels_
            update(1)
            if len(set(labels[sample])) < 2:  # of an outlier that isn't in the sample
                continue
            found.append((float(silhouette_score(vectors[sample], labels[sample])), labels))
    if not found:
        return [0] * len(vectors), None
    highest = max(score for score, _ in found)
    silhouette, labels = next(each for each in found if each[0] > highest - _CLEARLY_HIGHER)
    order = numpy.argsort(-numpy.bincount(labels), kind="stable")
    ranks = {int(group): rank for rank, group in enumerate(order)}
    return [ranks[int(label)] for label in labels], silhouette


def _describe(word: str, places: Sequence[Place], groups: Sequence[int]) -> List[str]:
    """Return for each group the words that are typically near its occurrences."""
    n_groups = max(groups) + 1
    counts: List[Counter] = [Counter() for _ in range(n_groups)]
    for place, group in zip(places, groups):
        start = max(0, place.position - _NEIGHBOURHOOD)
        near = place.sentence[start : place.position + _NEIGHBOURHOOD + 1]
        counts[group].update(
            {
                each.casefold()
                for each in near
                if len(each.encode(errors="replace")) >= _SHORTEST
                and each[0].isalpha()
                and each.casefold() != word.casefold()
            }
        )
    sizes = Counter(groups)
    names = []
    for group in range(n_groups):
        n_others = len(groups) - sizes[group]
        scores = {}
        for near, n_near in counts[group].items():
            n_near_others = sum(counts[i][near] for i in range(n_groups) if i != group)
            ratio = ((n_near + 0.5) / (sizes[group] + 1)) / ((n_near_others + 0.5) / (n_others + 1))
            # How much surer than chance the word is of this group
            if n_near * n_others > n_near_others * sizes[group]:
                scores[near] = math.log1p(n_near) * math.log(ratio)
        chosen = sorted(scores, key=lambda near: (-scores[near], near))[:_N_DESCRIBING]
        if n_groups == 1:
            names.append("all")
        else:
            names.append(f"near {', '.join(chosen)}" if chosen else f"group {group + 1}")
    return names


def write_map(found: ContextualMap, output: str, text: str, model: str) -> None:
    """
    Write the map as a page.

    # Parameters

    found : `ContextualMap`
    output : `str`
        The file.
    text, model : `str`
        What it was made from, for the reader.
    """
    from plotly.offline import get_plotlyjs

    n_places = len(found.places)
    points = numpy.concatenate([points for _, points, _ in found.layers])
    low, high = points.min(0), points.max(0)
    margin = numpy.where(high > low, 0.08 * (high - low), 1)
    how_many = f"{n_places:,} occurrences"
    if found.n_found > n_places:
        how_many = f"{n_places:,} of {found.n_found:,} occurrences, drawn at random,"
    if found.has_labels:
        colours = "Coloured by the labels of the text."
    elif found.silhouette is None:
        colours = "All occurrences are one group."
    else:
        colours = (
            f"Coloured by group in the top layer ({len(found.names)} by k-means, silhouette "
            f"{found.silhouette:.2f}: 1 is clearly separate, 0 is not); each group is named by "
            "words near its occurrences."
        )
    sizes = Counter(found.groups)
    data: Dict[str, Any] = {
        "title": f"“{found.word}” in its contexts",
        "source": f"{how_many} in {text}, placed by their vectors in {model} ("
        f"{METHODS[found.method]}). {colours}",
        "layers": [
            {
                "name": name,
                "x": numpy.round(points[:, 0], 4).tolist(),
                "y": numpy.round(points[:, 1], 4).tolist(),
                "note": _note(found, points, share),
            }
            for name, points, share in found.layers
        ],
        "ranges": numpy.stack([low - margin, high + margin], axis=1).tolist(),
        "size": 11 if n_places < 100 else 8 if n_places < 500 else 6,
        "group": found.groups,
        "groups": [
            {"name": name, "note": f"({sizes[group]:,})"} for group, name in enumerate(found.names)
        ],
        "occurrences": [
            {
                "before": " ".join(place.sentence[: place.position]),
                "word": place.sentence[place.position],
                "after": " ".join(place.sentence[place.position + 1 :]),
                "place": f"sentence {(place.number or 0) + 1:,}",
            }
            for place in found.places
        ],
    }
    write_page(output, "map.html", data["title"], data, get_plotlyjs())


def _note(found: ContextualMap, points: Array, share: Optional[float]) -> str:
    if not points.any():
        return (
            "This layer knows only the word, not its context: all occurrences have the same vector."
        )
    note = "Occurrences with similar vectors are near each other; the directions have no meaning."
    if share is not None:
        note += f" These two have {share:.0%} of the variance."
    if found.method == "tsne":
        note += " t-SNE keeps neighbours together; wide distances say nothing."
    return note
