from unittest.mock import Mock

import numpy as np
import pytest
import torch
from allennlp.data import Vocabulary
from hypothesis import given
from hypothesis import strategies as st

from allennlp_elmo_plugin.bilm.characters import words_to_character_ids
from allennlp_elmo_plugin.data import lexicon as lexicon_module
from allennlp_elmo_plugin.data.lexicon import Lexicon
from allennlp_elmo_plugin.files.text_lines import split_words

# The lengths around 8 and 15 bytes, where the keys of words change; NUL bytes, which fill keys.
WORDS = [
    *("x" * n for n in (1, 7, 8, 9, 14, 15, 16, 17, 255, 256, 257, 263, 271)),
    *("x" * n + "\0" for n in (1, 6, 7, 8, 13, 14, 15)),
    *("\0" * n for n in (1, 2, 8, 9, 15, 16)),
    *("東京", "é" * 7, "é" * 8, "<S>", "</S>"),
]
KNOWN = {"</S>": 0, "<S>": 1, "<UNK>": 2, "東京": 3, "b": 4}


@given(
    st.lists(
        st.lists(
            st.sampled_from(WORDS) | st.text("abä \t\r\x0b\x0c\x1c\x1d\x85\xa0\0", max_size=18)
        ),
        max_size=5,
    ),
    st.sampled_from([1, 6, 19]),
)
def test_every_word_has_one_number(texts, n_slots_log2):
    """Words are those of `split_words` in each line, and line ends have 0."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexicon_module, "_N_SLOTS_LOG2", n_slots_log2)
        lexicon, number_of = Lexicon(), {"\n": 0, "<S>": 1, "</S>": 2}
        for parts in [*texts, *texts]:
            lines = [" ".join(parts), " ".join(reversed(parts))]
            numbers = lexicon.number("".join(f"{line}\n" for line in lines).encode())
            assert numbers.dtype == np.int32
            words = [word for line in lines for word in [*split_words(line.encode()), "\n"]]
            for word, number in zip(words, numbers.tolist(), strict=True):
                assert number_of.setdefault(word, number) == number
            assert len(set(number_of.values())) == len(number_of)


def test_ids_also_of_words_that_were_forgotten(monkeypatch):
    """All but those of the streams are forgotten when there are more than so many."""
    monkeypatch.setattr(lexicon_module, "MAX_WORDS", 100)
    vocab = Vocabulary(
        non_padded_namespaces=["lm_tokens"], tokens_to_add={"lm_tokens": list(KNOWN)}
    )
    lexicon = Lexicon(20, vocab)
    stream = Mock(text=lexicon.number(b"first <S> first\n"))
    lexicon.streams.add(stream)
    for start in range(0, 1000, 40):
        n_words, before = len(lexicon._numbers), stream.text
        lexicon.forget()
        assert (stream.text is before) == (n_words <= 100)
        words = ["b", "東京", "</S>", *map(str, range(start, start + 40))]
        numbers = lexicon.number(f"{' '.join(words)}\n".encode()).reshape(2, -1)
        for some, of in ((stream.text, ["first", "<S>", "first"]), (numbers, words)):
            ids = lexicon.character_ids(some)
            assert ids.dtype == torch.long and ids.shape == (*some.shape, 20)
            expected = [*words_to_character_ids(of, 20).tolist(), [0] * 20]
            assert ids.view(-1, 20).tolist() == expected
            ids = lexicon.vocabulary_ids(some)
            assert ids.dtype == torch.long and ids.shape == some.shape
            assert ids.flatten().tolist() == [*(KNOWN.get(word, 2) for word in of), -100]
        assert len(lexicon._numbers) <= 150
