"""The map of a word: its occurrences in a text, placed by their vectors in each layer."""

import html
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from allennlp_elmo_plugin.analysis.figures import figure
from allennlp_elmo_plugin.embedding import nearest
from allennlp_elmo_plugin.embedding.batches import BatchEmbedder
from allennlp_elmo_plugin.files.atomic import write_text

MAX_OCCURRENCES = 2000
_MAX_LABELS = 12
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
    layers: dict[str, np.ndarray]
    groups: list[int]
    names: list[str]

    def members(self) -> list[np.ndarray]:
        """Return the rows of each group."""
        return [np.flatnonzero(np.equal(self.groups, i)) for i in range(len(self.names))]

    def titles(self, text: str, model: str) -> tuple[str, str]:
        """Return the title and the subtitle; `text` and `model` are names."""
        title = f"“{self.word}” in its contexts: {self.how_many} in {text}"
        return title, f"Similar vectors in {model} are near each other ({METHODS[self.method]})"


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
    `labels` are the groups of the sentences, and may be filled as these are read. Without labels,
    k-means finds `n_groups` in the top layer, by default as many as have the highest silhouette.
    """
    places, n_found = nearest.sample_occurrences(word, sentences, max_occurrences)
    least = max(2, n_groups or 0)
    if len(places) < least:
        raise ValueError(
            f"the word {word!r} has {len(places)} occurrences in different sentences; a map needs "
            f"at least {least}. Give more text" + ", or fewer --groups" * (least > 2)
        )
    how_many = f"{n_found:,} occurrences"
    if n_found > len(places):
        how_many = f"{len(places):,} of {how_many}, drawn at random"
    vectors = nearest.embed_word(embedder, places, "all")  # (layers, places, dim)
    if labels:
        of_places = [labels[place.number or 0] for place in places]
        names = [name for name, _ in Counter(of_places).most_common()]
        groups = [names.index(name) for name in of_places]
    else:
        groups = nearest.group(nearest.comparable(vectors[-1]), n_groups)
        names = _describe(word, places, groups)
    return WordMap(word, places, how_many, method, _place(vectors, method), groups, names)


def _place(vectors: np.ndarray, method: str) -> dict[str, np.ndarray]:
    """Return the points of each layer by its name, turned to be near those of the layer above."""
    from scipy.linalg import orthogonal_procrustes
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    n_places = vectors.shape[1]
    model = PCA(2, random_state=0)
    if method == "tsne":
        model = TSNE(2, perplexity=min(30, (n_places - 1) / 3), init="pca", random_state=0)
    layers: dict[str, np.ndarray] = {}
    above = None
    for number in range(len(vectors) - 1, 0, -1):
        points = model.fit_transform(nearest.comparable(vectors[number]).astype("float64"))
        points = points - points.mean(0)
        points = points * math.sqrt(n_places) / (np.linalg.norm(points) or 1.0)
        if above is not None:
            points = points @ orthogonal_procrustes(points, above)[0]
        layers[f"LSTM layer {number}"] = above = points
    layers["token layer"] = np.zeros((n_places, 2))  # It knows no context.
    return dict(reversed(layers.items()))


def _describe(word: str, places: Sequence[nearest.Occurrence], groups: Sequence[int]) -> list[str]:
    """Return for each group the word with those beside it that its size explains least."""
    counts: list[Counter] = [Counter() for _ in set(groups)]
    for (sentence, position, *_), group in zip(places, groups):
        before, after = ([*sentence, ""][i].casefold() for i in (position - 1, position + 1))
        counts[group].update([f"“{before} {word}”"] * before[:1].isalpha())
        counts[group].update([f"“{word} {after}”"] * after[:1].isalpha())
    total = sum(counts, Counter())
    names = []
    for group, count in enumerate(counts):
        share = groups.count(group) / len(places)
        # In standard deviations of what would be there by chance
        excess = {each: (n - share * total[each]) / total[each] ** 0.5 for each, n in count.items()}
        largest = sorted((-value, each) for each, value in excess.items() if value > 0)[:3]
        names.append(", ".join(each for _, each in largest) or f"group {group + 1}")
    return names


def write_figure(word_map: WordMap, output: str, text: str, model: str) -> None:
    """
    Draw the top layer to a file, whose ending says in which format, with the sentences of at most
    twelve occurrences: of each group in turn, of those nearest to its middle.
    """
    (layer, points), groups = list(word_map.layers.items())[-1], word_map.members()
    turns: list[tuple[int, int]] = []
    for rows in groups:
        from_middle = np.linalg.norm(points[rows] - points[rows].mean(0), axis=1)
        turns += enumerate(rows[from_middle.argsort()])
    shown = [row for _, row in sorted(turns)[:_MAX_LABELS]]
    shown.sort(key=lambda row: points[row, 0])
    half = (len(shown) + 1) // 2
    with figure(output, 9, 4.5) as axes:
        for name, rows in zip(word_map.names, groups):
            size = min(16, 6_000 / len(points))
            axes.scatter(points[rows, 0], points[rows, 1], size, label=f"{name} ({len(rows):,})")
        # The sentences in columns beside the points, in the order of the points' heights
        for column, x, side in ((shown[:half], 0.28, "right"), (shown[half:], 0.72, "left")):
            column.sort(key=lambda row: points[row, 1])
            for row, y in zip(column, np.linspace(0.06, 0.94, len(column))):
                colour = f"C{word_map.groups[row] % 10}"
                relpos = (float(x < 0.5), 0.5)
                line = {"arrowstyle": "-", "color": colour, "lw": 0.4, "relpos": relpos}
                label = _around(word_map.places[row]), points[row], (x, y), "data", "axes fraction"
                axes.annotate(*label, line, color=colour, fontsize=8, ha=side, va="center")
        titles = word_map.titles(text, f"{layer} of {model}")
        axes.set_title("\n".join(titles), fontsize="medium")
        axes.axis("off")
        axes.margins(x=0.75, y=0.1)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2, fontsize="small")


def _around(place: nearest.Occurrence) -> str:
    """Return an occurrence with five words on each side, in short lines."""
    start, end = max(0, place.position - 5), place.position + 6
    words = place.sentence[start:end]
    text = " ".join(["…"] * (start > 0) + words + ["…"] * (end < len(place.sentence)))
    return textwrap.fill(text, 36, break_long_words=False, break_on_hyphens=False)


def write_map(word_map: WordMap, output: str, text: str, model: str) -> Any:
    """Write a page that needs no network. Return its figure, which is of plotly."""
    from plotly import graph_objects

    groups = word_map.members()
    steps = []
    for layer, points in word_map.layers.items():
        x, y = ([points[rows, axis].round(4).tolist() for rows in groups] for axis in (0, 1))
        steps.append({"label": layer, "method": "restyle", "args": [{"x": x, "y": y}]})
    drawn = graph_objects.Figure()
    for number, (name, rows) in enumerate(zip(word_map.names, groups)):
        drawn.add_scatter(
            x=x[number],
            y=y[number],
            name=f"{html.escape(name)} ({len(rows):,})",
            text=[_sentence(word_map.places[row]) for row in rows],
            hovertemplate="%{text}<extra></extra>",
            mode="markers",
        )
    # In short lines, for narrow screens
    title, note = (
        "<br>".join(textwrap.wrap(html.escape(each), 45)) for each in word_map.titles(text, model)
    )
    largest = np.max([abs(points).max(0) for points in word_map.layers.values()], 0) + 0.1
    axes = [{"range": [-n, n], "showticklabels": False} for n in largest.tolist()]
    drawn.update_layout(
        title={"text": title, "subtitle": {"text": note}, "yanchor": "top", "y": 0.96},
        margin={"t": 140},
        legend={"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0},
        xaxis=axes[0],
        yaxis=axes[1],
        sliders=[{"steps": steps, "active": len(steps) - 1}],
    )
    page = drawn.to_html(include_plotlyjs=True)
    page = page.replace("<head>", '<head><meta name="viewport" content="width=device-width">', 1)
    write_text(output, page, errors="xmlcharrefreplace")
    return drawn


def _sentence(place: nearest.Occurrence) -> str:
    """Return the sentence of an occurrence as HTML in short lines, with its number."""
    words = [html.escape(word) for word in place.sentence]
    words[place.position] = f"<b>{words[place.position]}</b>"
    lines = textwrap.wrap(" ".join(words), 80, break_long_words=False, break_on_hyphens=False)
    return "<br>".join([*lines, f"sentence {(place.number or 0) + 1:,}"])
