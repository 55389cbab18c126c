import json
import random
from pathlib import Path

import numpy as np
import pytest
from allennlp.data.token_indexers.elmo_indexer import ELMoCharacterMapper

from allennlp_elmo_plugin.bilm.characters import (
    CharacterTable,
    check_sentences,
    sentences_to_character_ids,
    words_to_character_ids,
)

REFERENCE = Path(__file__).parents[1] / "fixtures" / "reference"

AWKWARD = [
    "",
    "the",
    "<S>",
    "</S>",
    "<UNK>",
    "straße",
    "東京",
    "🙂" * 13,
    "\x00",
    "\xa0x\u3000",
    "é" * 24,
    "w" + "é" * 30,
    *("x" * n for n in (46, 47, 48, 49, 60)),
    "\ud800",
    "a\udfffb",
]


def word_to_character_ids(word, max_characters=50):
    return words_to_character_ids([word], max_characters)[0]


def random_words(n: int, seed: int = 0) -> "list[str]":
    """Over all of Unicode, lone surrogates too, and of all lengths around the cut."""
    random_ = random.Random(seed)
    planes = [(1, 128), (128, 2048), (2048, 0xFFFF), (0xD800, 0xDFFF), (0x10000, 0x10FFFF)]
    return [
        "".join(
            chr(random_.randint(*random_.choice(planes))) for _ in range(random_.randint(0, 60))
        )
        for _ in range(n)
    ]


def test_spelling_equals_bilm_tf():
    cases = json.loads((REFERENCE / "char_ids.json").read_text(encoding="utf-8"))
    for word, case in cases.items():
        # bilm-tf trains without the 1 that makes room for time padding.
        assert (word_to_character_ids(word) - 1).tolist() == case["char_ids"]


def test_spelling_equals_allennlp():
    original = ELMoCharacterMapper()
    for word in AWKWARD + random_words(500):
        assert word_to_character_ids(word).tolist() == original.convert_word_to_char_ids(word)


def test_many_words_equal_each_alone():
    words = [*AWKWARD, *random_words(100)]
    for max_characters in (3, 7, 50):
        rows = words_to_character_ids(words, max_characters)
        assert rows.dtype == np.int16 and rows.shape == (len(words), max_characters)
        alone = [word_to_character_ids(word, max_characters) for word in words]
        assert np.array_equal(rows, alone)
    assert words_to_character_ids([]).shape == (0, 50)


def test_other_length():
    assert word_to_character_ids("abcd", 5).tolist() == [259, 98, 99, 100, 260]
    assert word_to_character_ids("</S>", 4).tolist() == [259, 258, 260, 261]


@pytest.mark.parametrize("max_words", [10, 100, 10_000])
def test_a_table_looks_up_what_it_spelled(max_words):
    table = CharacterTable(max_words=max_words, tokens_to_add={"[X]": 3})
    assert table.lookup([]).shape == (0, 50)
    words = AWKWARD + random_words(300)
    for _ in range(2):  # unknown, then known
        for start in range(0, len(words), 30):
            part = [*words[start : start + 30], "[X]"]
            rows = table.lookup(part)
            assert rows.dtype == np.int16 and len(table._rows) <= max(max_words, 31)
            assert rows[-1].tolist()[:3] == [259, 4, 260]
            assert np.array_equal(rows[:-1], [word_to_character_ids(word) for word in part[:-1]])
            rows[:] = 0  # They belong to the caller.


def test_sentences_are_padded_with_zeros():
    sentences = [["a", "東京"], [], ["b", "<S>", "c"]]
    ids = sentences_to_character_ids(sentences)
    assert ids.shape == (3, 3, 50) and ids.dtype == np.int64
    for row, sentence in zip(ids, sentences):
        for word, spelled in zip(sentence, row):
            assert np.array_equal(spelled, word_to_character_ids(word))
        assert not row[len(sentence) :].any()


def test_no_sentences():
    assert sentences_to_character_ids([]).shape == (0, 0, 50)
    assert sentences_to_character_ids([[]]).shape == (1, 0, 50)


@pytest.mark.parametrize(
    "batch, message",
    [
        ("a text", r"got the text 'a text', .* \[\['a', 'text'\]\]"),
        ([["a"], "b c"], r"sentence 1 is the string 'b c'.*\['b', 'c'\]"),
        ([["a", 3]], "sentence 0 has the word 3, a int"),
        ([[b"a"]], "sentence 0 has the word b'a', a bytes"),
    ],
)
def test_what_is_no_batch_of_sentences_is_refused(batch, message):
    with pytest.raises(ValueError, match=message):
        check_sentences(batch)
    assert check_sentences(iter([("a", "b"), iter("cd")])) == [["a", "b"], ["c", "d"]]
