from pathlib import Path
from typing import Any, List, Tuple

import numpy as np
import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.plots.contextual_map import (
    _group,
    _project,
    make_map,
    write_map,
)
from tests.plots.conftest import Open
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


@pytest.fixture(scope="module")
def path(embedder: ElmoEmbedder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("plotly")
    path = tmp_path_factory.mktemp("map") / "map.html"
    write_map(make_map(embedder, "bank", TEXT), str(path), "a <text>", "a model")
    return path


def points_of(page: Any) -> List[Any]:
    """The middles of the points as they are on the page."""
    found = page.locator(".point").evaluate_all(
        "points => points.map((each) => { const box = each.getBoundingClientRect();"
        " return [box.x + box.width / 2, box.y + box.height / 2]; })"
    )
    return [tuple(each) for each in found]


def test_layers_differ_and_the_first_has_one_place(embedder: ElmoEmbedder) -> None:
    found = make_map(embedder, "bank", TEXT)
    assert [name for name, _, _ in found.layers] == ["token layer", "LSTM layer 1", "LSTM layer 2"]
    assert found.n_found == len(found.places) == 10
    token, *lstms = (points for _, points, _ in found.layers)
    assert not token.any()
    for points in lstms:
        assert (points**2).sum() / 10 == pytest.approx(1)
        assert len(np.unique(points.round(6), axis=0)) == 10


def test_a_frequent_word_has_one_place_in_the_first_layer() -> None:
    """Whose mean in float32 is not quite its vector."""
    vector = np.random.RandomState(0).randn(256).astype("float32")
    points, share = _project(np.tile(vector, (2000, 1)), "pca")
    assert not points.any() and share is None


def test_distances_are_those_of_pca(embedder: ElmoEmbedder) -> None:
    """Turning a layer to the one above changes no distance."""
    found = make_map(embedder, "bank", TEXT)
    vectors = np.stack([embedder.embed_sentence(each)[1, each.index("bank")] for each in TEXT])
    vectors = vectors - vectors.sum(0) / 15
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors -= vectors.mean(0)
    left, values, _ = np.linalg.svd(vectors, full_matrices=False)
    expected = left[:, :2] * values[:2]
    expected *= (10 / (expected**2).sum()) ** 0.5
    points = found.layers[1][1]
    for each in (points, expected):
        each[:] = np.linalg.norm(each[:, None] - each[None], axis=2)[:, :2]
    assert points == pytest.approx(expected, abs=1e-4)


def test_a_layer_is_turned_to_the_one_above(embedder: ElmoEmbedder) -> None:
    _, (_, lower, _), (_, upper, _) = make_map(embedder, "bank", TEXT).layers
    # No other turn brings them nearer.
    most = np.linalg.svd(lower.T @ upper, compute_uv=False).sum()
    assert (lower * upper).sum() == pytest.approx(most)


@pytest.mark.parametrize(
    "word, near", [("岸", ("河", "银")), ("किनारे", ("नदी", "पैसा")), ("bank", ("river", "money"))]
)
def test_groups_are_named_by_their_neighbours(
    embedder: ElmoEmbedder, word: str, near: Tuple[str, str]
) -> None:
    # The same words beside the word, so that a model without training can tell them apart.
    text = [f"{i} {beside} {word} {beside} {i}".split() for beside in near for i in "abcd"]
    found = make_map(embedder, word, text)
    assert {name.split()[1] for name in found.names} == set(near)
    if word == "bank":
        assert found.groups in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)
        assert found.silhouette is not None and found.silhouette > 0.3


def test_vectors_that_are_the_same_are_one_group() -> None:
    assert _group(np.ones((10, 4), "float32")) == ([0] * 10, None)
    vectors = np.ones((10, 4), "float32")
    vectors[:4, 0] = 0
    groups, silhouette = _group(vectors)
    assert groups == [1] * 4 + [0] * 6 and silhouette == pytest.approx(1)


def test_number_of_groups() -> None:
    """Three groups where they are clear, otherwise as few as have about the same silhouette."""
    vectors = np.random.RandomState(0).randn(99, 8).astype("float32")
    assert max(_group(vectors)[0]) == 1
    assert max(_group(vectors, 5)[0]) == 4
    assert _group(vectors, 1) == ([0] * 99, None)
    vectors[:33, 0] += 20
    vectors[33:66, 1] += 20
    assert max(_group(vectors)[0]) == 2


def test_labels_are_groups(embedder: ElmoEmbedder) -> None:
    found = make_map(embedder, "bank", TEXT, label_of=lambda i: "rare" if i < 3 else "frequent")
    assert found.names == ["frequent", "rare"] and found.groups == [1] * 3 + [0] * 7
    assert found.silhouette is None


def test_a_sample_is_the_same_each_time(embedder: ElmoEmbedder) -> None:
    first, second = (make_map(embedder, "bank", TEXT, max_occurrences=6) for _ in range(2))
    assert first.places == second.places and len(first.places) == 6 and first.n_found == 10


def test_tsne(embedder: ElmoEmbedder) -> None:
    points = make_map(embedder, "bank", TEXT, "tsne").layers[2][1]
    assert np.isfinite(points).all() and len(np.unique(points.round(4), axis=0)) == 10
    with pytest.raises(ConfigurationError, match="10 times|9 times .* t-SNE needs at least 10"):
        make_map(embedder, "bank", TEXT[:9], "tsne")


def test_a_word_that_occurs_once_or_never(embedder: ElmoEmbedder) -> None:
    with pytest.raises(ConfigurationError, match="'bank' occurs once .* at least 2 occurrences"):
        make_map(embedder, "bank", TEXT[:1] * 2)
    with pytest.raises(ConfigurationError, match="'shore' is not in the text of"):
        make_map(embedder, "shore", TEXT)
    with pytest.raises(ConfigurationError, match="max_occurrences is 1"):
        make_map(embedder, "bank", TEXT, max_occurrences=1)
    with pytest.raises(ConfigurationError, match="number of groups is 11; 'bank' has 10 occurr"):
        make_map(embedder, "bank", TEXT, n_groups=11)


def test_the_page(path: Path, open_page: Open) -> None:
    """The slider moves the points, and the mouse over a point shows its sentence as text."""
    page = open_page(path)
    page.wait_for_selector(".point")
    assert "a <text>" in page.inner_text("#source")
    layers = []
    for number in (2, 1, 0):
        page.get_by_role("button", name=f"LSTM layer {number}" if number else "token").click()
        page.wait_for_timeout(200)
        layers.append(points_of(page))
        if number:
            seen = set()
            for x, y in layers[-1]:
                page.mouse.move(x, y)
                page.wait_for_timeout(80)
                assert page.is_visible("#tip") and page.inner_text("#tip mark") == "bank"
                seen.add(page.inner_text("#tip").split("\n")[0])
            assert seen == {" ".join(each) for each in TEXT}
    assert [len(set(points)) for points in layers] == [10, 10, 1]
    assert layers[0] != layers[1] and "not its context" in page.inner_text("#note")
    # All layers have the same scale, and fill the canvas together.
    box = page.locator("#map").bounding_box()
    width, height = np.ptp(np.array(layers[0] + layers[1]), axis=0)
    assert width > 0.8 * box["width"] and height > 0.8 * box["height"]
    page.focus("#layer")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(200)
    assert points_of(page) == [pytest.approx(each, abs=0.5) for each in layers[1]]
