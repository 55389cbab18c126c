import random

import numpy as np
import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.bilm.characters import words_to_character_ids
from allennlp_elmo_plugin.data import lexicon as lexicon_module
from allennlp_elmo_plugin.data.lexicon import Lexicon
from allennlp_elmo_plugin.files.text_lines import split_words

# The lengths around 8 and 15 bytes, where the keys of words change; NUL bytes, which fill keys.
WORDS = [
    *("x" * n for n in (1, 7, 8, 9, 14, 15, 16, 17, 255, 256, 257, 263, 271)),
    *("x" * n + "\0" for n in (1, 6, 7, 8, 13, 14, 15)),
    *("\0" * n for n in (1, 2, 8, 9, 15, 16)),
    "東京",
    "é" * 7,
    "é" * 8,
    "<S>",
    "</S>",
]


def random_text(seed, n_lines=300):
    random_ = random.Random(seed)
    words = WORDS + ["".join(random_.choices("abä", k=random_.randint(1, 18))) for _ in range(500)]
    lines = [random_.choices(words, k=random_.choice([0, 1, 3, 30])) for _ in range(n_lines)]
    return lines, "".join(" ".join(line) + "\n" for line in lines).encode()


def assert_numbered(lexicon, lines, text):
    numbers, n_words = lexicon.number_text(text)
    assert numbers.dtype == np.int32
    assert n_words.tolist() == [len(line) for line in lines]
    assert lexicon.words(numbers) == [word for line in lines for word in line]
    return numbers


@pytest.mark.parametrize("n_slots_log2", [1, 6, 20])
def test_every_word_has_one_number(monkeypatch, n_slots_log2):
    monkeypatch.setattr(lexicon_module, "_N_SLOTS_LOG2", n_slots_log2)
    lexicon = Lexicon()
    number_of = {}
    for seed in (0, 1, 0):
        lines, text = random_text(seed)
        numbers = assert_numbered(lexicon, lines, text).tolist()
        words = [word for line in lines for word in line]
        for word, number in zip(words, numbers):
            assert number_of.setdefault(word, number) == number
    assert len(set(number_of.values())) == len(number_of)
    assert (number_of["<S>"], number_of["</S>"]) == (1, 2)
    words = list(number_of)
    assert lexicon.number_words(words).tolist() == list(number_of.values())


def test_the_same_words_as_of_each_line():
    random_ = random.Random(0)
    for _ in range(300):
        lines = [
            bytes(random_.choices(b"ab \t\r\x0b\x0c\x1c\x1d\x85\xa0\x00", k=random_.randint(0, 12)))
            for _ in range(5)
        ]
        lines = [line.decode("latin-1").encode() for line in lines]
        assert_numbered(Lexicon(), list(map(split_words, lines)), b"\n".join(lines) + b"\n")


def test_ids():
    vocab = Vocabulary(
        non_padded_namespaces=["lm_tokens"],
        tokens_to_add={"lm_tokens": ["</S>", "<S>", "<UNK>", "東京", "b"]},
    )
    lexicon = Lexicon(20, vocab)
    for words in (["a"], ["b", "東京", "<S>"], ["new"] * 3):
        numbers = np.append(lexicon.number_words(words), np.int32(0)).reshape(-1, 2)
        ids = lexicon.character_ids(numbers)
        assert ids.dtype == torch.long and ids.shape == (*numbers.shape, 20)
        expected = [*words_to_character_ids(words, 20).tolist(), [0] * 20]
        assert ids.view(-1, 20).tolist() == expected
        known = {"</S>": 0, "<S>": 1, "東京": 3, "b": 4}
        ids = lexicon.vocabulary_ids(numbers)
        assert ids.dtype == torch.long and ids.shape == numbers.shape
        assert ids.flatten().tolist() == [*(known.get(word, 2) for word in words), -100]


def test_vocabulary_without_the_unknown_word():
    lexicon = Lexicon(None, Vocabulary())
    with pytest.raises(ConfigurationError, match="<UNK>.*lm_tokens.*elmo-vocab"):
        lexicon.vocabulary_ids(np.zeros(1, dtype=np.int32))


@pytest.mark.parametrize("limit", ["MAX_WORDS", "MAX_BYTES"])
def test_forgets_when_full(monkeypatch, limit):
    monkeypatch.setattr(lexicon_module, limit, 100)
    monkeypatch.setattr(lexicon_module, "_N_SLOTS_LOG2", 8)
    lexicon = Lexicon(20)
    first = lexicon.number_words([f"first{i}" for i in range(10)])
    assert not lexicon.is_full
    for start in range(0, 2000, 40):
        lines = [[f"{start + i}" for i in range(40)], ["first3", "x" * 20]]
        numbers = assert_numbered(
            lexicon, lines, "".join(" ".join(x) + "\n" for x in lines).encode()
        )
        words = [word for line in lines for word in line]
        assert np.array_equal(lexicon.character_ids(numbers), words_to_character_ids(words, 20))
        if lexicon.is_full:
            lexicon.forget()
        assert len(lexicon._words) == len(lexicon._numbers) + 1 <= 150
        assert lexicon._n_bytes == sum(map(len, lexicon._numbers)) < 400
    if limit == "MAX_WORDS":
        assert lexicon.words(first) == [f"first{i}" for i in range(10)]
