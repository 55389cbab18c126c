"""The map of a word: its occurrences in a text, placed by their vectors in each layer."""

import html
import math
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy

from allennlp_elmo_plugin.embedding.nearest import (
    Place,
    comparable,
    embed_places,
    sample_occurrences,
)
from allennlp_elmo_plugin.files.whole import whole_file

MAX_OCCURRENCES = 2000
"""Default number of occurrences that are placed, drawn at random if there are more."""

METHODS = {"pca": "PCA", "tsne": "t-SNE"}

_MOST_GROUPS = 8
_N_FOR_TSNE = 10
_PERPLEXITY = 30  # of t-SNE: about how many neighbours count
_CLEARLY_HIGHER = 0.05  # of silhouettes; less is no reason for more groups

_NEIGHBOURHOOD = 4  # words on each side of an occurrence that may describe its group
_N_DESCRIBING = 3
_SHORTEST = 3  # bytes; shorter words say little about a meaning. A Chinese character has three.

Array = Any  # numpy.ndarray, whose type parameters differ between the supported versions


class WordMap(NamedTuple):
    """
    Occurrences of a word, all of them or a sample of `n_found`; by the name of each layer their
    points, shape `(places, 2)`; and the group of each, the largest first. The silhouette says how
    clear the groups are: NaN for given ones and for one alone.
    """

    word: str
    places: List[Place]
    n_found: int
    method: str
    layers: Dict[str, Array]
    groups: List[int]
    names: List[str]
    silhouette: float

    @property
    def how_many(self) -> str:
        """The number of occurrences, for the reader."""
        if self.n_found > len(self.places):
            return f"{len(self.places):,} of {self.n_found:,} occurrences, drawn at random"
        return f"{self.n_found:,} occurrences"


def make_map(
    embedder: Any,
    word: str,
    sentences: Iterable[List[str]],
    method: str = "pca",
    max_occurrences: int = MAX_OCCURRENCES,
    label_of: Optional[Callable[[int], str]] = None,
    n_groups: Optional[int] = None,
) -> WordMap:
    """
    Place the occurrences of a word, as it is written, in the tokenised sentences of a text.
    `label_of` returns the group of a sentence, which has that number from 0; without it, `n_groups`
    are found by k-means in the top layer, by default as many as the silhouette decides.
    """
    least = _N_FOR_TSNE if method == "tsne" else 2
    places, n_found = sample_occurrences(word, sentences, max_occurrences)
    if len(places) < max(least, n_groups or 1):
        raise ValueError(
            f"the word {word!r} has {len(places)} occurrences in different sentences; "
            f"{METHODS[method]} needs at least {least}. Give more text, or fewer --groups"
        )
    vectors = embed_places(embedder, places, "all")  # (layers, places, dim)
    if label_of is None:
        groups, silhouette = _group(comparable(vectors[-1]), n_groups)
        names = _describe(word, places, groups)
    else:
        labels = [label_of(place.number or 0) for place in places]
        names = [name for name, _ in Counter(labels).most_common()]
        groups, silhouette = [names.index(label) for label in labels], math.nan
    layers = _place(vectors, method)
    return WordMap(word, places, n_found, method, layers, groups, names, silhouette)


def _place(vectors: Array, method: str) -> Dict[str, Array]:
    """Return the points of each layer by its name, turned to be near those of the layer above."""
    from scipy.linalg import orthogonal_procrustes

    found: Dict[str, Array] = {}
    above: Array = None
    for number in reversed(range(len(vectors))):
        points = _project(vectors[number], method)
        if above is not None and points.any():
            points = points @ orthogonal_procrustes(points, above)[0]
        above = points
        found[f"LSTM layer {number}" if number else "token layer"] = points
    return dict(reversed(found.items()))


def _project(vectors: Array, method: str) -> Array:
    """Return points, shape `(places, 2)`, with a root mean square of 1, or all zero."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    # The mean of many equal numbers in float32 isn't theirs.
    spread = numpy.linalg.norm(vectors - vectors.mean(0, dtype="float64"))
    if spread <= 1e-5 * numpy.linalg.norm(vectors):
        return numpy.zeros((len(vectors), 2))
    model = PCA(2, random_state=0)
    if method == "tsne":
        perplexity = min(_PERPLEXITY, (len(vectors) - 1) / 3)
        model = TSNE(2, perplexity=perplexity, init="pca", random_state=0)
    points = model.fit_transform(comparable(vectors).astype("float64"))
    points = points - points.mean(0)
    return points / math.sqrt((points**2).sum() / len(points))


def _group(vectors: Array, n_groups: Optional[int] = None) -> Tuple[List[int], float]:
    """
    Divide vectors into groups, by default the fewest (two to eight) for which no other number has a
    clearly higher silhouette. Return the group of each, the largest first, and the silhouette.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    # Of vectors that are the same but for rounding, KMeans makes one group.
    n_different = len(numpy.unique(vectors.round(5), axis=0))
    most = min(_MOST_GROUPS, n_different, max(2, math.isqrt(len(vectors) // 2)))
    found: List[Tuple[float, Array]] = []
    for number in range(2, most + 1) if n_groups is None else [n_groups]:
        labels = KMeans(number, n_init=10, random_state=0).fit(vectors).labels_
        is_scorable = 1 < len(set(labels)) < len(vectors)
        score = float(silhouette_score(vectors, labels)) if is_scorable else math.nan
        found.append((score, labels))
    if not found:
        return [0] * len(vectors), math.nan
    enough = max(score for score, _ in found) - _CLEARLY_HIGHER
    silhouette, labels = next((each for each in found if each[0] > enough), found[0])
    ranks = [int(group) for group, _ in Counter(labels).most_common()]
    return [ranks.index(label) for label in labels], silhouette


def _describe(word: str, places: Sequence[Place], groups: Sequence[int]) -> List[str]:
    """Return for each group the words that are typically near its occurrences."""
    counts: List[Counter] = [Counter() for _ in set(groups)]
    if len(counts) == 1:
        return ["all"]
    for place, group in zip(places, groups):
        start = max(0, place.position - _NEIGHBOURHOOD)
        near = place.sentence[start : place.position + _NEIGHBOURHOOD + 1]
        long = [each for each in near if len(each.encode(errors="replace")) >= _SHORTEST]
        counts[group].update({each.casefold() for each in long if each[0].isalpha()})
    names = []
    for group, count in enumerate(counts):
        size = groups.count(group)
        scores = {}
        for near_word, n in count.items():
            n_elsewhere = sum(other[near_word] for other in counts) - n
            # How much more often than elsewhere, and how often
            ratio = (n + 0.5) / (size + 1) * (len(groups) - size + 1) / (n_elsewhere + 0.5)
            if ratio > 1 and near_word != word.casefold():
                scores[near_word] = math.log1p(n) * math.log(ratio)
        chosen = sorted(scores, key=lambda each: (-scores[each], each))[:_N_DESCRIBING]
        names.append(f"near {', '.join(chosen)}" if chosen else f"group {group + 1}")
    return names


def write_map(found: WordMap, output: str, text: str, model: str) -> None:
    """Write what `draw_map` returns as a page that needs no network."""
    page = draw_map(found, text, model).to_html(include_plotlyjs=True, auto_play=False)
    with whole_file(output) as staged:
        Path(staged).write_text(page, encoding="utf-8", errors="xmlcharrefreplace")


def draw_map(found: WordMap, text: str, model: str) -> Any:
    """
    Return a figure of plotly with a slider for the layers. `text` and `model` are what they are
    called in the title.
    """
    from plotly import graph_objects

    frames = []
    for layer, points in found.layers.items():
        traces = []
        for group, name in enumerate(found.names):
            rows = [row for row, each in enumerate(found.groups) if each == group]
            traces.append(
                graph_objects.Scatter(
                    x=points[rows, 0].round(4),
                    y=points[rows, 1].round(4),
                    name=f"{html.escape(name)} ({len(rows):,})",
                    text=[_sentence(found.places[row]) for row in rows],
                    hovertemplate="%{text}<extra></extra>",
                    mode="markers",
                )
            )
        frames.append(graph_objects.Frame(name=layer, data=traces))
    at_once = {"mode": "immediate", "frame": {"redraw": False}, "transition": {"duration": 300}}
    steps = [
        {"label": layer, "method": "animate", "args": [[layer], at_once]} for layer in found.layers
    ]
    title = f"“{found.word}” in its contexts: {found.how_many} in {text}"
    note = f"Similar vectors in {model} are near each other ({METHODS[found.method]})"
    if not math.isnan(found.silhouette):
        note += f"; groups by k-means in the top layer, silhouette {found.silhouette:.2f}"
    largest = 1.1 * max(abs(points).max() for points in found.layers.values()) or 1
    axis = {"range": [-largest, largest], "showticklabels": False}
    figure = graph_objects.Figure(frames[-1].data, frames=frames)
    figure.update_layout(
        title={"text": html.escape(title), "subtitle": {"text": html.escape(note)}},
        xaxis=axis,
        yaxis=axis,
        sliders=[{"steps": steps, "active": len(steps) - 1}],
    )
    return figure


def _sentence(place: Place) -> str:
    """Return the sentence of an occurrence as HTML in short lines, with its number."""
    words = [html.escape(word) for word in place.sentence]
    words[place.position] = f"<b>{words[place.position]}</b>"
    lines = textwrap.wrap(" ".join(words), 80, break_long_words=False, break_on_hyphens=False)
    return "<br>".join([*lines, f"sentence {(place.number or 0) + 1:,}"])
