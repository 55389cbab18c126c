import math
from pathlib import Path
from typing import Any, Tuple

import numpy as np
import pytest

from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.embedding.nearest import Place
from allennlp_elmo_plugin.plots.word_map import _describe, _group, draw_map, make_map, write_map
from tests.support.testing import write_random_elmo

TEXT = [
    f"{place} {verb} by the {kind} bank {end}".split()
    for place, verb, kind in (("He", "sat", "river"), ("She", "paid", "money"))
    for end in (".", "today", "with <b>care</b>", "</script><script>alert(1)</script>", "& left")
]
"""Ten sentences, five of each kind."""


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> ElmoEmbedder:
    return ElmoEmbedder(*write_random_elmo(tmp_path_factory.mktemp("elmo")))


def test_occurrences_are_placed_by_their_vectors_in_each_layer(embedder: ElmoEmbedder) -> None:
    found = make_map(embedder, "bank", TEXT)
    assert list(found.layers) == ["token layer", "LSTM layer 1", "LSTM layer 2"]
    assert found.how_many == "10 occurrences" and len(found.places) == 10
    token, lower, upper = found.layers.values()
    assert not token.any()  # which knows no context
    for number, points in ((1, lower), (2, upper)):
        vectors = np.stack([embedder.embed_sentence(words)[number, 5] for words in TEXT])
        vectors = vectors - vectors.sum(0) / 15
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors -= vectors.mean(0)
        left, values, _ = np.linalg.svd(vectors, full_matrices=False)
        expected = left[:, :2] * values[:2]
        expected *= (10 / (expected**2).sum()) ** 0.5
        # Turning a layer to the one above changes no distance.
        distances = [np.linalg.norm(each[:, None] - each, axis=2) for each in (points, expected)]
        assert distances[0] == pytest.approx(distances[1], abs=1e-4)
        assert points.sum(0) == pytest.approx(0, abs=1e-6)
    # No other turn brings the layers nearer.
    most = np.linalg.svd(lower.T @ upper, compute_uv=False).sum()
    assert (lower * upper).sum() == pytest.approx(most)


def test_a_frequent_word_has_one_place_in_the_first_layer() -> None:
    """Whose mean in float32 is not quite its vector."""
    vector = np.random.RandomState(0).randn(256).astype("float32")

    class OneVector:
        def embed_batch(self, sentences: Any, output_format: str) -> Any:
            return [np.tile(vector, (1, len(words), 1)) for words in sentences]

    text = [["bank", str(i)] for i in range(2000)]
    found = make_map(OneVector(), "bank", text)  # type: ignore
    assert not found.layers["token layer"].any() and found.names == ["all"]


@pytest.mark.parametrize(
    "word, near", [("岸", ("河", "银")), ("किनारे", ("नदी", "पैसा")), ("bank", ("river", "money"))]
)
def test_groups_are_named_by_their_neighbours(
    embedder: ElmoEmbedder, word: str, near: Tuple[str, str]
) -> None:
    # The same words beside the word, so that a model without training can tell them apart.
    text = [f"{i} {beside} {word} {beside} {i}".split() for beside in near for i in "abcd"]
    text += [f"{near[0]} . . . . {word} . of {near[1]}".split(), [*near[:1], "x", *text[0]]]
    found = make_map(embedder, word, text)
    assert {name.split()[1].strip(",") for name in found.names} == set(near)


def test_names_are_the_words_that_are_more_frequent_in_a_group_than_elsewhere() -> None:
    texts = [
        "far a b of to Common one bank one",
        "common two bank x x x two",
        "common two bank",
        "common six bank",
    ]
    places = [Place(text.split(), text.split().index("bank")) for text in texts]
    # `one` is there once a sentence; `far` and the second `two` are too far away to count.
    assert _describe("bank", places, [1, 0, 0, 0]) == ["near two, six, common", "near one"]
    assert _describe("bank", places, [0, 0, 0, 1]) == ["near two, one, common", "near six"]


def test_groups_are_as_few_as_are_clear_and_the_largest_is_first() -> None:
    def n_groups(vectors: Any, number: Any = None) -> int:
        return len(set(_group(vectors, number)[0]))

    vectors = np.ones((10, 4), "float32")
    assert n_groups(vectors) == 1
    vectors[:4, 0] = 0
    groups, silhouette = _group(vectors)
    assert groups == [1] * 4 + [0] * 6 and silhouette == pytest.approx(1)
    vectors = np.random.RandomState(0).randn(99, 8).astype("float32")
    assert (n_groups(vectors), n_groups(vectors, 5), n_groups(vectors, 1)) == (2, 5, 1)
    vectors[:33, 0] += 20
    vectors[33:66, 1] += 20
    assert n_groups(vectors) == 3


def test_labels_are_groups(embedder: ElmoEmbedder) -> None:
    found = make_map(embedder, "bank", TEXT, label_of=lambda i: "rare" if i < 3 else "frequent")
    assert found.names == ["frequent", "rare"] and found.groups == [1] * 3 + [0] * 7
    assert math.isnan(found.silhouette)


def test_a_sample_is_the_same_each_time(embedder: ElmoEmbedder) -> None:
    first, second = (make_map(embedder, "bank", TEXT, max_occurrences=6) for _ in range(2))
    assert first.places == second.places and len(first.places) == 6 and first.n_found == 10


def test_tsne_places_every_occurrence(embedder: ElmoEmbedder) -> None:
    points = make_map(embedder, "bank", TEXT, "tsne").layers["LSTM layer 2"]
    assert np.isfinite(points).all() and len(np.unique(points.round(4), axis=0)) == 10


def test_too_little_text_is_refused(embedder: ElmoEmbedder) -> None:
    for text, changes, message in (
        (TEXT[:1] * 2, {}, "'bank' has 1 occurrences .* PCA needs at least 2"),
        (TEXT[:9], {"method": "tsne"}, "'bank' has 9 occurrences .* t-SNE needs at least 10"),
        (TEXT, {"max_occurrences": 1}, "'bank' has 1 occurrences .* needs at least 2"),
        (TEXT, {"n_groups": 11}, "fewer --groups"),
    ):
        with pytest.raises(ValueError, match=message):
            make_map(embedder, "bank", text, **changes)  # type: ignore[arg-type]
    assert len(make_map(embedder, "bank", TEXT[:2], n_groups=2).places) == 2


def test_the_page_has_a_slider_for_layers_and_a_sentence_for_each_point(
    embedder: ElmoEmbedder, tmp_path: Path
) -> None:
    pytest.importorskip("plotly")
    found = make_map(embedder, "bank", TEXT, max_occurrences=9, n_groups=2)
    figure = draw_map(found, "a <text>", "a model")
    assert [frame.name for frame in figure.frames] == list(found.layers)
    (slider,) = figure.layout.sliders
    assert [step.label for step in slider.steps] == list(found.layers) and slider.active == 2
    assert [step.args[0] for step in slider.steps] == [(name,) for name in found.layers]
    for frame, points in zip(figure.frames, found.layers.values()):
        for group, (trace, name) in enumerate(zip(frame.data, found.names)):
            rows = [row for row in range(9) if found.groups[row] == group]
            assert trace.name == f"{name} ({len(rows)})".replace("<", "&lt;").replace(">", "&gt;")
            assert np.stack([trace.x, trace.y], 1) == pytest.approx(points[rows], abs=1e-4)
            for row, text in zip(rows, trace.text):
                place = found.places[row]
                assert "<b>bank</b>" in text and text.endswith(f"sentence {place.number + 1}")
                assert text.count("<") == text.count("<b>") * 2 + text.count("<br>")
    largest = max(abs(points).max() for points in found.layers.values())
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        assert list(axis.range) == pytest.approx([-1.1 * largest, 1.1 * largest])
    assert [list(trace.x) for trace in figure.data] == [list(t.x) for t in figure.frames[-1].data]
    title = "“bank” in its contexts: 9 of 10 occurrences, drawn at random in a &lt;text&gt;"
    assert figure.layout.title.text == title
    note = "Similar vectors in a model are near each other (PCA); groups by k-means in the top "
    note += f"layer, silhouette {found.silhouette:.2f}"
    assert figure.layout.title.subtitle.text == note
    write_map(found, str(tmp_path / "map.html"), "a <text>", "a model")
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert len(page) > 1_000_000 and "<script>alert" not in page and 'src="http' not in page
    assert "Plotly.animate" not in page  # It begins with the top layer.
