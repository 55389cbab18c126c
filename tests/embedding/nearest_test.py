"""Neighbours of a word: with a random model where numbers don't matter, with `tiny` for senses."""

import io
from typing import Any, List

import numpy as np
import pytest

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.embedding import nearest as nearest_module
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
def embedder(tmp_path_factory: Any) -> ElmoEmbedder:
    return ElmoEmbedder(*write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=3))


@pytest.fixture(scope="module")
def tiny() -> ElmoEmbedder:
    return ElmoEmbedder("tiny")


def test_senses(tiny: ElmoEmbedder) -> None:
    queries = ["She sat on the bank of the river .", "The bank paid him the money ."]
    found = tiny.nearest("bank", iter(TEXT), [each.split() for each in queries], n_nearest=2)
    assert [" ".join(each.query.sentence) for each in found] == queries
    for neighbours, sense in zip(found, (RIVER, MONEY)):
        assert {" ".join(each.sentence) for each in neighbours.nearest} <= set(sense)


def test_queries_from_the_text(tiny: ElmoEmbedder) -> None:
    found = tiny.nearest("bank", TEXT)
    assert len(found) == 2
    for neighbours in found:
        query = neighbours.query
        assert query.number is not None and TEXT[query.number] == query.sentence
        assert query.similarity == 1.0
        # All others, the sentence that occurs twice once.
        assert {each.number for each in [query, *neighbours.nearest]} == set(range(6))


def test_similarities(embedder: ElmoEmbedder) -> None:
    query = ["the", "bank", "the", "bank"]
    found = embedder.nearest("bank", TEXT, [query], n_nearest=10)
    assert [each.query.position for each in found] == [1, 3]
    places = [(query, 1), (query, 3), *((each, each.index("bank")) for each in TEXT[:6])]
    vectors = np.stack([embedder.embed_sentence(words)[-1, i] for words, i in places])
    vectors -= vectors.sum(0) / (len(vectors) + nearest_module._N_ZEROS)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for row, neighbours in enumerate(found):
        similarities = [each.similarity for each in neighbours.nearest]
        assert similarities == sorted(similarities, reverse=True) and len(similarities) == 6
        for each in neighbours.nearest:
            assert TEXT[each.number].index("bank") == each.position
            expected = vectors[row] @ vectors[2 + each.number]
            assert each.similarity == pytest.approx(expected, abs=1e-5)


def test_a_sample(embedder: ElmoEmbedder) -> None:
    """Memory and time don't grow with the number of occurrences, nor with that of long lines."""
    taken: List[int] = []

    def sentences() -> Any:
        for i in range(300):
            taken.append(i)
            yield [*map(str, range(i, i + 500)), "a", *map(str, range(i, i + 500)), "a"]

    (neighbours,) = embedder.nearest("a", sentences(), [["a"]], 50, max_occurrences=20)
    assert len(taken) == 300 and len(neighbours.nearest) == 20
    numbers = [each.number for each in neighbours.nearest]
    assert max(numbers) > 100 and len({*numbers}) > 10
    for each in neighbours.nearest:
        assert each.sentence[each.position] == "a" and len(each.sentence) <= 201
    again = embedder.nearest("a", sentences(), [["a"]], 50, max_occurrences=20)
    assert again == [neighbours]


def test_vectors_of_a_file_are_those_of_the_whole_line(
    embedder: ElmoEmbedder, tmp_path: Any
) -> None:
    sentence = [*map(str, range(150)), "bank", *map(str, range(150))]
    text = io.StringIO("A bank .\n" + " ".join(sentence))
    embedder.embed_file(text, str(tmp_path / "layers.hdf5"))
    places, _ = nearest_module.sample_occurrences("bank", [["A", "bank", "."], sentence], 2)
    found = nearest_module.read_vectors(str(tmp_path / "layers.hdf5"), places)
    assert found[1] == pytest.approx(embedder.embed_sentence(sentence)[-1, 150], abs=1e-5)


def test_one_occurrence_is_enough_for_a_query(embedder: ElmoEmbedder) -> None:
    (neighbours,) = embedder.nearest("money", TEXT, [["the", "money"]])
    (found,) = neighbours.nearest
    assert -1 <= found.similarity <= 1 and found.number == 3
    # The same word in the same sentence is not its own neighbour.
    (neighbours,) = embedder.nearest("money", TEXT, [TEXT[3]])
    assert neighbours.nearest == []


def test_as_text() -> None:
    query = nearest_module.Occurrence(1.0, "one two three four five six".split(), 2)
    long = [*("abcdefghij" for _ in range(9)), "x", *("abcdefghij" for _ in range(9))]
    near = nearest_module.Occurrence(-0.256, long, 9, 7)
    lines = str(nearest_module.Neighbours(query, [near])).split("\n")
    assert lines[0] == "  query  " + "one two".rjust(34) + " [three] four five six"
    three = "abcdefghij abcdefghij abcdefghij"
    assert lines[1] == "  -0.26  " + three.rjust(34) + f" [x] {three}"


@pytest.mark.parametrize(
    "word, sentences, queries, message",
    [
        ("Bank", TEXT, None, "'Bank' is not in the text of .*; words are compared as they are"),
        ("shore", TEXT, None, "'shore' is not in the text of 70 words; words are compared as they"),
        ("money", TEXT, None, "'money' occurs once in the text .* give more text, or a query"),
        ("bank", TEXT, [["the", "shore"]], "'bank' is not in the query 'the shore'"),
        ("bank", [], None, "'bank' is not in the text of 0 words"),
        ("bank", "the bank", None, "is the string 't', but a sentence is a list of words"),
        ("bank", ["the bank"], None, "is the string 'the bank', but a sentence is a list of words"),
        ("bank", TEXT, "the bank", "got the text 'the bank'"),
        ("bank", TEXT, ["the bank"], "is the string 'the bank'"),
    ],
)
def test_mistakes(
    embedder: ElmoEmbedder, word: Any, sentences: Any, queries: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        embedder.nearest(word, sentences, queries)


def test_anything_to_iterate_over(embedder: ElmoEmbedder) -> None:
    queries = [["the", "bank"], ["a", "bank"]]
    expected = embedder.nearest("bank", TEXT, queries)
    assert embedder.nearest("bank", map(iter, TEXT), map(iter, queries)) == expected

    def same_list() -> Any:
        words: List[str] = []
        for words[:] in TEXT:
            yield words

    assert embedder.nearest("bank", same_list(), map(tuple, queries)) == expected


def test_vectors_that_depend_on_the_order_are_not_compared(tmp_path: Any) -> None:
    embedder = ElmoEmbedder(*write_random_elmo(tmp_path), initial_state="carried")
    with pytest.raises(ValueError, match='"carried".*use "settled"'):
        embedder.nearest("bank", TEXT)


def test_other_spaces_are_parts_of_words(embedder: ElmoEmbedder) -> None:
    word = "10\u00a0000"
    (neighbours,) = embedder.nearest(word, [["about", word], ["over", word]], [[word]])
    assert len(neighbours.nearest) == 2


def test_a_file_of_another_text(embedder: ElmoEmbedder, tmp_path: Any) -> None:
    embedder.embed_file(io.StringIO("A bank\n"), str(tmp_path / "o"))
    for text in ([["A", "bank", "."]], [[], ["bank"]]):
        places, _ = nearest_module.sample_occurrences("bank", text, 2)
        with pytest.raises(ValueError, match="o: key . doesn't have the . words of line ."):
            nearest_module.read_vectors(str(tmp_path / "o"), places)
