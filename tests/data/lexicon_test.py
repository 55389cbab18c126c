import random
from types import SimpleNamespace

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


def assert_numbered(lexicon, number_of, lines, text):
    """Each word has a number of its own, and line ends have 0."""
    numbers = lexicon.number(text)
    assert numbers.dtype == np.int32
    words = [word for line in lines for word in [*line, "\n"]]
    assert len(numbers) == len(words)
    for word, number in zip(words, numbers.tolist()):
        assert number_of.setdefault(word, number) == number
    assert len(set(number_of.values())) == len(number_of)
    return numbers


MARKS = {"\n": 0, "<S>": 1, "</S>": 2}


@pytest.mark.parametrize("n_slots_log2", [1, 6, 19])
def test_every_word_has_one_number(monkeypatch, n_slots_log2):
    monkeypatch.setattr(lexicon_module, "_N_SLOTS_LOG2", n_slots_log2)
    lexicon, number_of = Lexicon(), dict(MARKS)
    for seed in (0, 1, 0):
        assert_numbered(lexicon, number_of, *random_text(seed))


def test_the_same_words_as_of_each_line():
    random_ = random.Random(0)
    for _ in range(300):
        lines = [
            bytes(random_.choices(b"ab \t\r\x0b\x0c\x1c\x1d\x85\xa0\x00", k=random_.randint(0, 12)))
            for _ in range(5)
        ]
        lines = [line.decode("latin-1").encode() for line in lines]
        text = b"\n".join(lines) + b"\n"
        assert_numbered(Lexicon(), dict(MARKS), list(map(split_words, lines)), text)


def test_ids():
    vocab = Vocabulary(
        non_padded_namespaces=["lm_tokens"],
        tokens_to_add={"lm_tokens": ["</S>", "<S>", "<UNK>", "東京", "b"]},
    )
    lexicon = Lexicon(20, vocab)
    for words in (["a"], ["b", "東京", "<S>"], ["new"] * 3, ["</S>", *map(str, range(100))]):
        numbers = lexicon.number(f"{' '.join(words)}\n".encode()).reshape(-1, 2)
        ids = lexicon.character_ids(numbers)
        assert ids.dtype == torch.long and ids.shape == (*numbers.shape, 20)
        expected = [*words_to_character_ids(words, 20).tolist(), [0] * 20]
        assert ids.view(-1, 20).tolist() == expected
        known = {"</S>": 0, "<S>": 1, "東京": 3, "b": 4}
        ids = lexicon.vocabulary_ids(numbers)
        assert ids.dtype == torch.long and ids.shape == numbers.shape
        assert ids.flatten().tolist() == [*(known.get(word, 2) for word in words), -100]


def test_vocabulary_of_another_model():
    with pytest.raises(ConfigurationError, match="no namespace lm_tokens.*elmo-vocab"):
        Lexicon(None, Vocabulary())


def test_forgets_when_full(monkeypatch):
    monkeypatch.setattr(lexicon_module, "MAX_WORDS", 100)
    lexicon = Lexicon(20)
    stream = SimpleNamespace(text=lexicon.number(b"first second first\n"))
    lexicon.streams.append(stream)
    for start in range(0, 2000, 40):
        n_words, before = len(lexicon._numbers), stream.text
        lexicon.forget()
        assert (stream.text is before) == (n_words <= 100)
        words = [f"{start + i}" for i in range(40)]
        numbers = lexicon.number(f"{' '.join(words)}\n".encode())
        for some, of in ((stream.text, ["first", "second", "first"]), (numbers, words)):
            ids = lexicon.character_ids(some).tolist()
            assert ids == [*words_to_character_ids(of, 20).tolist(), [0] * 20]
        assert len(lexicon._numbers) <= 150
