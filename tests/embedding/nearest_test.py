"""Neighbours of a word: with a random model where numbers don't matter, with `tiny` for senses."""

import io
import re

import numpy as np
import pytest

from allennlp_elmo_plugin.embedding import nearest as nearest_module
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.embedding.nearest import Neighbours, Occurrence
from tests.conftest import REPOSITORY_ROOT
from tests.support.testing import write_random_elmo

RIVER = [
    "They walked along the bank of the river .",
    "The boat lay near the bank of the stream .",
    "A tree stood on the bank above the water .",
]
MONEY = [
    "He kept his money in the bank .",
    "The bank lent him a thousand pounds .",
    "The bank was ruined , and its clerks were dismissed .",
]
TEXT = [line.split() for line in [*RIVER, *MONEY, "", "Nothing of the sort .", RIVER[0]]]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return ElmoEmbedder(*write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=3))


def test_senses():
    tiny = ElmoEmbedder("tiny")
    queries = ["She sat on the bank of the river .", "The bank paid him the money ."]
    results = tiny.nearest("bank", iter(TEXT), (line.split() for line in queries), n_nearest=2)
    assert [" ".join(neighbours.query.sentence) for neighbours in results] == queries
    for neighbours, sense in zip(results, (RIVER, MONEY)):
        assert {" ".join(neighbour.sentence) for neighbour in neighbours.nearest} <= set(sense)
    results = tiny.nearest("bank", TEXT)  # with queries from the text
    assert len(results) == 2
    for neighbours in results:
        query = neighbours.query
        assert query.number is not None and TEXT[query.number] == query.sentence
        assert query.similarity == 1.0
        # All others, the sentence that occurs twice once.
        assert {occurrence.number for occurrence in [query, *neighbours.nearest]} == set(range(6))


def test_groups():
    """The larger ones come first; by default as many as have the highest silhouette."""
    vectors, group = np.array([[0.9, 0.1], [0, 1], [1, 0], [0.9, -0.1]]), nearest_module.group
    assert group(vectors, 2) == [0, 1, 0, 0] and nearest_module._middles(vectors) == [2, 1]
    vectors = np.random.RandomState(0).randn(99, 8).astype("float32")
    vectors[:33, 0] += 20
    vectors[33:66, 1] += 20
    assert [len(set(group(vectors, number))) for number in (None, 5, 1)] == [3, 5, 1]
    assert len(set(group(vectors[:66]))) == 2 and group(vectors[:7]) == [0] * 7
    assert len(set(group(vectors[::11]))) == 2  # Nine occurrences have no more groups.
    assert set(group(np.ones((10, 4), "float32"))) == {0}


def test_similarities(embedder):
    query = ["the", "bank", "the", "bank"]
    results = embedder.nearest("bank", TEXT, [query], n_nearest=10)
    assert [neighbours.query.position for neighbours in results] == [1, 3]
    places = [(query, 1), (query, 3), *((words, words.index("bank")) for words in TEXT[:6])]
    vectors = np.stack([embedder.embed_sentence(words)[-1, i] for words, i in places])
    vectors -= vectors.sum(0) / (len(vectors) + 5)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for row, neighbours in enumerate(results):
        similarities = [neighbour.similarity for neighbour in neighbours.nearest]
        assert similarities == sorted(similarities, reverse=True) and len(similarities) == 6
        for neighbour in neighbours.nearest:
            assert TEXT[neighbour.number].index("bank") == neighbour.position
            expected = vectors[row] @ vectors[2 + neighbour.number]
            assert neighbour.similarity == pytest.approx(expected, abs=1e-5)


def test_a_sample(embedder):
    """Memory and time don't grow with the number of occurrences, nor with that of long lines."""

    def sentences():
        for i in range(300):
            yield [*map(str, range(i, i + 500)), "a", *map(str, range(i, i + 500)), "a"]

    (neighbours,) = embedder.nearest("a", sentences(), [["a"]], 50, max_occurrences=20)
    assert len(neighbours.nearest) == 20
    numbers = [neighbour.number for neighbour in neighbours.nearest]
    assert max(numbers) > 100 and len({*numbers}) > 10
    for neighbour in neighbours.nearest:
        assert neighbour.sentence[neighbour.position] == "a"
        assert len(neighbour.sentence) == min(201, 1002 - neighbour.start)
    assert embedder.nearest("a", sentences(), [["a"]], 50, max_occurrences=20) == [neighbours]
    places, n_found = nearest_module.sample_occurrences("a", sentences(), 20)
    assert n_found == 600 and len({place.key for place in places}) == 20


def test_vectors_of_a_file(embedder, tmp_path):
    """Those of a long line are of the whole line; a file of another text is refused."""
    sentence = [*map(str, range(150)), "bank", *map(str, range(150))]
    text = [["A", "bank", "."], sentence]
    for output_format in ("all", "top"):
        path = str(tmp_path / output_format)
        lines = io.StringIO("\n".join(map(" ".join, text)))
        embedder.embed_file(lines, path, output_format)
        places, _ = nearest_module.sample_occurrences("bank", text, 2)
        vectors = nearest_module.read_vectors(path, places)
        for row, (words, position) in zip(vectors, ((text[0], 1), (sentence, 150))):
            expected = embedder.embed_sentence(words)[-1, position]
            assert row == pytest.approx(expected, abs=1e-5)
    for other in ([["bank"]], [[], [], ["bank"]]):
        places, _ = nearest_module.sample_occurrences("bank", other, 2)
        with pytest.raises(ValueError, match="top: key . doesn't have the 1 words of line [13]"):
            nearest_module.read_vectors(path, places)


def test_the_numbers_of_the_readme():
    """By the formula of the documentation, from vectors that everyone can make."""
    code = re.search(
        'text = """(.*?)"""', (REPOSITORY_ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    sentences = [line.split() for line in code[1].splitlines()]
    tops = ElmoEmbedder("tiny").embed_batch(sentences, "top")
    vectors = np.stack([top[s.index("play")] for top, s in zip(tops, sentences)])

    def cosines(vectors, query, others):
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return [f"{vectors[query] @ vectors[other]:.2f}" for other in others]

    assert cosines(vectors, 0, (4, 2)) == ["0.97", "0.95"]
    vectors -= vectors.sum(0) / (len(vectors) + 5)
    assert cosines(vectors, 0, (4, 2)) == ["0.90", "0.86"]
    assert cosines(vectors, 3, (5, 1)) == ["0.51", "0.43"]


@pytest.mark.parametrize("seed", [9, 14, 18])
def test_groups_are_the_best_of_many_starts(seed):
    """Ten starts find none that has one mean in each of these."""
    numbers = np.random.default_rng(seed)
    middles = np.repeat(numbers.normal(size=(6, 3)) * 10, 8, 0)  # eight times each
    vectors = (middles + numbers.normal(size=(48, 3)) * 0.1).astype("float32")
    groups = nearest_module.group(vectors, 6)
    assert len(set(groups)) == 6 and all(len(set(groups[i : i + 8])) == 1 for i in range(0, 48, 8))


def test_one_occurrence_is_enough_for_a_query(embedder):
    (neighbours,) = embedder.nearest("money", TEXT, [["the", "money"]])
    assert [neighbour.number for neighbour in neighbours.nearest] == [3]
    # The same word in the same sentence is not its own neighbour.
    (neighbours,) = embedder.nearest("money", TEXT, [TEXT[3]])
    assert neighbours.nearest == []


def test_as_text():
    query = Occurrence("one two three four five six".split(), 2)
    long = [*["abcdef"] * 9, "x", *["abcdef"] * 9]
    lines = str(Neighbours(query, [Occurrence(long, 9, 7, similarity=-0.256)])).split("\n")
    assert lines[0] == "  query  " + "one two".rjust(34) + " [three] four five six"
    shown = "abcdef abcdef abcdef abcdef abcdef"  # as much as fits
    assert lines[1] == f"  -0.26  {shown} [x] {shown}"


def test_mistakes(embedder):
    for word, sentences, queries, message in [
        ("Bank", TEXT, None, "'Bank' is not in the text of 70 words; words are compared"),
        ("money", TEXT, None, "'money' occurs once in the text .* give more text, or a"),
        ("bank", TEXT, [["the", "shore"]], "'bank' is not in the query 'the shore'"),
        ("bank", "the bank", None, "is the string 't', but a sentence is a list of"),
    ]:
        with pytest.raises(ValueError, match=message):
            embedder.nearest(word, sentences, queries)
