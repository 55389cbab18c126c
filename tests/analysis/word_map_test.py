import html
import re

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from allennlp_elmo_plugin.analysis.word_map import _describe, make_map, write_figure, write_map
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.embedding.nearest import Occurrence, comparable, embed_word
from tests.support.testing import write_random_elmo

LONG = "left-" * 20
TEXT = [
    f"{place} {verb} by the {kind} bank {end}".split()
    for place, verb, kind in (("He", "sat", "river"), ("She", "paid", "money"))
    for end in (".", "today", "with <b>care</b>", "</script><script>alert(1)</script>", "& " + LONG)
]
"""Ten sentences, five of each kind."""


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return ElmoEmbedder(*write_random_elmo(tmp_path_factory.mktemp("elmo")))


@pytest.mark.parametrize(
    "n_copies, method, model",
    [
        (1, "pca", PCA(2)),
        *((n, "tsne", TSNE(2, perplexity=3 * n, init="pca", random_state=0)) for n in (1, 10)),
    ],
)
def test_layers_are_placed_by_scikit_learn(n_copies, method, model, embedder):
    text = [[*words, str(i)] for i in range(n_copies) for words in TEXT]
    word_map = make_map(embedder, "bank", text, method)
    assert list(word_map.layers) == ["token layer", "LSTM layer 1", "LSTM layer 2"]
    assert word_map.how_many == f"{len(text)} occurrences" and len(word_map.places) == len(text)
    vectors = embed_word(embedder, word_map.places, "all")
    token, lower, upper = word_map.layers.values()
    assert not token.any()  # which knows no context
    for number, points in ((1, lower), (2, upper)):
        expected = model.fit_transform(comparable(vectors[number]).astype("float64"))
        expected -= expected.mean(0)
        expected *= (len(text) / (expected**2).sum()) ** 0.5
        # Turning a layer to the one above changes no distance.
        distances = [np.linalg.norm(array[:, None] - array, axis=2) for array in (points, expected)]
        assert distances[0] == pytest.approx(distances[1], abs=1e-3)
        assert points.sum(0) == pytest.approx(0, abs=1e-4)
    # No other turn brings the layers nearer.
    most = np.linalg.svd(lower.T @ upper, compute_uv=False).sum()
    assert (lower * upper).sum() == pytest.approx(most)


def test_names_are_the_word_with_those_beside_it_beyond_the_size_of_the_group():
    texts = ["To नदी bank of", "bank of x", "the bank , x", "The bank"]
    places = [Occurrence(text.split(), text.split().index("bank")) for text in texts]
    assert _describe("bank", places, [0, 0, 1, 1]) == ["“bank of”, “नदी bank”", "“the bank”"]
    assert _describe("bank", places, [0, 0, 0, 0]) == ["group 1"]
    assert _describe("bank", [Occurrence(["bank"], 0)] * 2, [0, 1]) == ["group 1", "group 2"]


def test_labels_are_groups_and_the_largest_is_first(embedder):
    word_map = make_map(embedder, "bank", TEXT, labels=["rare", *["frequent"] * 7, "rare", "rare"])
    assert word_map.names == ["frequent", "rare"] and word_map.groups == [1, *[0] * 7, 1, 1]
    word_map = make_map(embedder, "bank", TEXT[:7], n_groups=2)
    assert word_map.groups.count(0) > 3 and all("bank" in name for name in word_map.names)


def test_too_little_text_is_refused(embedder):
    for n_sentences, n_groups, least in ((1, None, 2), (10, 11, 11)):
        cure = "Give more text" + ", or fewer --groups" * (n_groups is not None)
        message = f"'bank' has {n_sentences} occurrences .* needs at least {least}. {cure}$"
        with pytest.raises(ValueError, match=message):
            make_map(embedder, "bank", TEXT[:n_sentences] * 2, n_groups=n_groups)
    assert len(make_map(embedder, "bank", TEXT[:2], n_groups=2).places) == 2


def test_the_page_has_a_slider_for_layers_and_a_sentence_for_each_point(embedder, tmp_path):
    pytest.importorskip("plotly")
    word_map = make_map(embedder, "bank", TEXT, max_occurrences=9, n_groups=2)
    assert word_map.places == make_map(embedder, "bank", TEXT, max_occurrences=9).places
    figure = write_map(word_map, str(tmp_path / "map.html"), "a <text>", "a model")
    (slider,) = figure.layout.sliders
    assert len(figure.data) == 2
    assert [step.label for step in slider.steps] == list(word_map.layers) and slider.active == 2
    for group, (trace, name) in enumerate(zip(figure.data, word_map.names)):
        rows = [row for row in range(9) if word_map.groups[row] == group]
        assert trace.name == f"{name} ({len(rows)})".replace("<", "&lt;").replace(">", "&gt;")
        for step, points in zip(slider.steps, word_map.layers.values()):
            shown = np.stack([step.args[0][axis][group] for axis in "xy"], 1)
            assert shown == pytest.approx(points[rows], abs=1e-4)
        assert np.stack([trace.x, trace.y], 1) == pytest.approx(shown)  # the top layer
        for row, text in zip(rows, trace.text):
            assert text.endswith(f"<br>sentence {word_map.places[row].number + 1}")
            assert "<b>bank</b>" in text and text.count("<") == 2 + text.count("<br>")
            assert ("left" in text) == (LONG in text)
    largest = np.max([abs(points).max(0) for points in word_map.layers.values()], 0) + 0.1
    for axis, end in zip((figure.layout.xaxis, figure.layout.yaxis), largest):
        assert list(axis.range) == pytest.approx([-end, end])
    title = "“bank” in its contexts: 9 of 10 occurrences,<br>drawn at random in a &lt;text&gt;"
    note = "Similar vectors in a model are near each<br>other (PCA)"
    assert (figure.layout.title.text, figure.layout.title.subtitle.text) == (title, note)
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert len(page) > 1_000_000 and "<script>alert" not in page and 'src="http' not in page


def test_a_figure_has_sentences_of_all_groups(embedder, savefig, tmp_path):
    sentences = enumerate([*TEXT, *TEXT[:2], ["bank"]])
    text = [["$", *words, *f"a b c d $ e {number}".split()] for number, words in sentences]
    path = tmp_path / "map.svg"
    labels = ["many"] * 12 + ["one"]
    word_map = make_map(embedder, "bank", text, labels=labels)
    write_figure(word_map, str(path), "a <text>", "a model")
    (axes,) = savefig.call_args.args[0].axes
    for side, notes in (("right", axes.texts[:6]), ("left", axes.texts[6:])):
        assert [note.get_ha() for note in notes] == [side] * 6
        for heights in ([note.xyann[1] for note in notes], [note.xy[1] for note in notes]):
            assert list(heights) == sorted(heights)  # in the order of the points
        assert all(0 < place < 1 for note in notes for place in note.xyann)
    text = html.unescape(path.read_text(encoding="utf-8"))
    assert "<!-- Similar vectors in LSTM layer 2 of a model are near each other (PCA) -->" in text
    assert "<!-- many (12) -->" in text and "<!-- one (1) -->" in text
    comments = re.findall(r"<!-- ([^!]*bank.*?) -->", text, re.S)
    assert "$ bank a b c d $ …" in comments and len(comments) == 13  # with the title
