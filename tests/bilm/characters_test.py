import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allennlp_elmo_plugin.bilm.characters import (
    CharacterTable,
    check_sentences,
    sentences_to_character_ids,
    words_to_character_ids,
)
from tests.support.bilm_tf import REFERENCE

# Words of any characters, including lone surrogates, and of all lengths around the limit
WORDS = st.text(st.characters(), max_size=60) | st.text("aé東🙂\ud800\0", min_size=10, max_size=60)
SENTENCES = st.lists(st.lists(WORDS | st.sampled_from(["<S>", "</S>", "<UNK>"])), max_size=5)


def test_spelling_equals_bilm_tf():
    cases = json.loads((REFERENCE / "char_ids.json").read_text(encoding="utf-8"))
    # bilm-tf trains without the 1 that makes room for time padding.
    expected = [case["char_ids"] for case in cases.values()]
    assert (words_to_character_ids(list(cases)) - 1).tolist() == expected
    assert words_to_character_ids(["abcd"], 5).tolist() == [[259, 98, 99, 100, 260]]


@settings(max_examples=25)
@given(SENTENCES, st.integers(3, 60))
@example([[], ["x" * n for n in range(45, 51)], ["<S>", "</S>"]], 50)
@example([[]], 50)
def test_sentences_are_spelled_as_by_allennlp(sentences, max_characters):
    """Also padded with zeros."""
    indexers = pytest.importorskip("allennlp.data.token_indexers.elmo_indexer")
    original = indexers.ELMoCharacterMapper()
    table = CharacterTable(max_characters)
    for _ in range(2):  # new words, then known ones
        ids = sentences_to_character_ids(sentences, table)
        longest = max(map(len, sentences), default=0)
        assert ids.shape == (len(sentences), longest, max_characters) and ids.dtype == np.int64
        for row, sentence in zip(ids, sentences):
            assert not row[len(sentence) :].any()
            for word, spelled in zip(sentence, row):
                if max_characters == 50:
                    assert spelled.tolist() == original.convert_word_to_char_ids(word)
                assert np.array_equal(spelled, words_to_character_ids([word], max_characters)[0])


@pytest.mark.parametrize("max_words", [10, 100])
def test_a_table_has_its_own_tokens_and_a_limit(max_words):
    table = CharacterTable(max_words=max_words, tokens_to_add={"[X]": 3})
    words = [f"word{i % 70}" for i in range(200)]
    for start in range(0, len(words), 7):
        part = words[start : start + 7]
        rows = table.lookup([*part, "[X]"])
        assert rows.dtype == np.int16 and len(table._rows) <= max_words
        assert rows[-1].tolist() == [259, 4, 260, *[261] * 47]
        assert np.array_equal(rows[:-1], words_to_character_ids(part))
        rows[:] = 0  # They belong to the caller.
    assert (len(table._rows) == 71) == (max_words == 100)


def test_only_a_batch_of_sentences_is_accepted():
    for batch, message in (
        ("a text", r"got the text 'a text' instead of .*: \[\['a', 'text'\]\]"),
        ([["a"], "b c"], r"sentence 1 is the string 'b c'.*\['b', 'c'\]"),
        ([{"a": 1}], "sentence 0 is {'a': 1}, but a sentence is a list of words"),
        ([[b"a"]], "sentence 0 has the word b'a', a bytes"),
    ):
        with pytest.raises(ValueError, match=message):
            check_sentences(batch)
    assert check_sentences(iter([("a", "b"), iter("cd")])) == [["a", "b"], ["c", "d"]]
