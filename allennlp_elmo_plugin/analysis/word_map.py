"""The map of a word: its occurrences in a text, placed by their vectors in each layer."""

import html
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from allennlp_elmo_plugin.embedding import nearest
from allennlp_elmo_plugin.embedding.batches import BatchEmbedder
from allennlp_elmo_plugin.files.whole import whole_file

MAX_OCCURRENCES = 2000
"""Default number of occurrences that are placed, drawn at random if there are more."""

METHODS = {"pca": "PCA", "tsne": "t-SNE"}


class WordMap(NamedTuple):
    """
    Occurrences of a word, all or a sample (`how_many`); by the name of each layer their points,
    shape `(places, 2)`; and the group of each, the largest first, with their names.
    """

    word: str
    places: list[nearest.Occurrence]
    how_many: str
    method: str
    layers: dict[str, numpy.ndarray]
    groups: list[int]
    names: list[str]


def make_map(
    embedder: BatchEmbedder,
    word: str,
    sentences: Iterable[list[str]],
    method: str = "pca",
    max_occurrences: int = MAX_OCCURRENCES,
    labels: Sequence[str] | None = None,
    n_groups: int | None = None,
) -> WordMap:
    """
    Place the occurrences of a word, as it is written, in the tokenised sentences of a text.
    `labels` are the groups of the sentences, when these have been read; without them, `n_groups`
    are found by k-means in the top layer, by default as many as have the highest silhouette.
    """
    places, n_found = nearest.sample_occurrences(word, sentences, max_occurrences)
    least = max(2, n_groups or 0)
    if len(places) < least:
        raise ValueError(
            f"the word {word!r} has {len(places)} occurrences in different sentences; a map needs "
            f"at least {least}. Give more text, or fewer --groups"
        )
    how_many = f"{n_found:,} occurrences"
    if n_found > len(places):
        how_many = f"{len(places):,} of {how_many}, drawn at random"
    vectors = nearest.embed_places(embedder, places, "all")  # (layers, places, dim)
    if labels:
        found = [labels[place.number or 0] for place in places]
        names = [name for name, _ in Counter(found).most_common()]
        groups = [names.index(name) for name in found]
    else:
        groups = nearest.group(nearest.comparable(vectors[-1]), n_groups)
        names = _describe(word, places, groups)
    return WordMap(word, places, how_many, method, _place(vectors, method), groups, names)


def _place(vectors: numpy.ndarray, method: str) -> dict[str, numpy.ndarray]:
    """Return the points of each layer by its name, turned to be near those of the layer above."""
    from scipy.linalg import orthogonal_procrustes
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    n_places = vectors.shape[1]
    model = PCA(2, random_state=0)
    if method == "tsne":
        model = TSNE(2, perplexity=min(30, (n_places - 1) / 3), init="pca", random_state=0)
    found: dict[str, numpy.ndarray] = {}
    above = None
    for number in range(len(vectors) - 1, 0, -1):
        points = model.fit_transform(nearest.comparable(vectors[number]).astype("float64"))
        points = points - points.mean(0)
        points = points * math.sqrt(n_places) / (numpy.linalg.norm(points) or 1.0)
        if above is not None:
            points = points @ orthogonal_procrustes(points, above)[0]
        found[f"LSTM layer {number}"] = above = points
    found["token layer"] = numpy.zeros((n_places, 2))  # It knows no context.
    return dict(reversed(found.items()))


def _describe(word: str, places: Sequence[nearest.Occurrence], groups: Sequence[int]) -> list[str]:
    """Return for each group the words that are near it most beyond what its size explains."""
    counts: list[Counter] = [Counter() for _ in set(groups)]
    for place, group in zip(places, groups):
        start = max(0, place.position - 4)
        near = {*place.sentence[start : place.position + 5]} - {word}
        counts[group].update(each.casefold() for each in near if each[0].isalpha())
    total = sum(counts, Counter())
    names = []
    for group, count in enumerate(counts):
        share = groups.count(group) / len(places)
        # In standard deviations of what would be there by chance
        excess = {each: (n - share * total[each]) / total[each] ** 0.5 for each, n in count.items()}
        chosen = [
            each
            for each in sorted(excess, key=lambda each: (-excess[each], each))
            if excess[each] > 0
        ]
        names.append(f"near {', '.join(chosen[:3])}" if chosen else f"group {group + 1}")
    return names


def write_map(found: WordMap, output: str, text: str, model: str) -> None:
    """Write what `draw_map` returns as a page that needs no network."""
    page = draw_map(found, text, model).to_html(include_plotlyjs=True)
    with whole_file(output) as staged:
        Path(staged).write_text(page, encoding="utf-8", errors="xmlcharrefreplace")


def draw_map(found: WordMap, text: str, model: str) -> Any:
    """Return a figure of plotly; its title has the names of the `text` and the `model`."""
    from plotly import graph_objects

    groups = [numpy.flatnonzero(numpy.equal(found.groups, i)) for i in range(len(found.names))]
    steps = []
    for layer, points in found.layers.items():
        x, y = ([points[rows, axis].round(4).tolist() for rows in groups] for axis in (0, 1))
        steps.append({"label": layer, "method": "restyle", "args": [{"x": x, "y": y}]})
    figure = graph_objects.Figure()
    for number, (name, rows) in enumerate(zip(found.names, groups)):
        figure.add_scatter(
            x=x[number],
            y=y[number],
            name=f"{html.escape(name)} ({len(rows):,})",
            text=[_sentence(found.places[row]) for row in rows],
            hovertemplate="%{text}<extra></extra>",
            mode="markers",
        )
    title = f"“{found.word}” in its contexts: {found.how_many} in {text}"
    note = f"Similar vectors in {model} are near each other ({METHODS[found.method]})"
    largest = 1.1 * max(abs(points).max() for points in found.layers.values())
    axis = {"range": [-largest, largest], "showticklabels": False}
    figure.update_layout(
        title={"text": html.escape(title), "subtitle": {"text": html.escape(note)}},
        xaxis=axis,
        yaxis=axis,
        sliders=[{"steps": steps, "active": len(steps) - 1}],
    )
    return figure


def _sentence(place: nearest.Occurrence) -> str:
    """Return the sentence of an occurrence as HTML in short lines, with its number."""
    words = [html.escape(word) for word in place.sentence]
    words[place.position] = f"<b>{words[place.position]}</b>"
    lines = textwrap.wrap(" ".join(words), 80, break_long_words=False, break_on_hyphens=False)
    return "<br>".join([*lines, f"sentence {(place.number or 0) + 1:,}"])
