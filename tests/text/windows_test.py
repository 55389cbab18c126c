import random

import pytest
import torch

from allennlp_elmo_plugin.bilm.characters import words_to_character_ids
from allennlp_elmo_plugin.text import lexicon
from allennlp_elmo_plugin.text.lexicon import Lexicon
from allennlp_elmo_plugin.text.windows import WindowStream
from tests.support.corpora import padded_ids, plain_windows, random_lines, vocabulary_of


@pytest.mark.parametrize("seed", range(40))
def test_windows_are_those_of_the_text_in_ids_of_words_and_characters(seed, monkeypatch):
    draw = random.Random(seed)
    n_rows, num_steps, drop_last, contiguous, max_words = map(
        draw.choice, (range(1, 6), range(1, 9), (True, False), (True, False), (10, 999))
    )
    monkeypatch.setattr(lexicon, "MAX_WORDS", max_words)
    lines, returned = random_lines(draw), range(draw.randrange(n_rows), n_rows)
    vocab = vocabulary_of(lines[: draw.choice([9, 99])])
    words = Lexicon(9, vocab.get_token_to_index_vocabulary("lm_tokens"))
    texts = ["\n".join([*lines[i : i + 4], ""]).encode() for i in range(0, len(lines), 4)]
    how = {"drop_last": drop_last, "contiguous": contiguous}
    directions = {"directions": ["forward", "backward"], "returned": returned}
    stream = WindowStream(texts, n_rows, num_steps, words, **directions, **how)
    expected = [plain_windows(lines, n_rows, num_steps, back, **how) for back in (False, True)]
    for runs, *both in zip(stream.fill_rows(), *expected, strict=True):
        for window, sides in zip(stream.windows(runs), both, strict=True):
            sides = [[side[row] for row in returned] for side in sides]
            ids, targets = padded_ids(sides, num_steps, vocab)
            assert torch.equal(words.vocabulary_ids(window.inputs).clamp(min=0), ids)
            assert torch.equal(words.vocabulary_ids(window.targets), targets)
            characters, is_word = words.character_ids(window.inputs), targets != -100
            spelt = words_to_character_ids(sum(sides[0], []), 9)
            assert characters[is_word].tolist() == spelt.tolist() and not characters[~is_word].any()


def test_lines_are_read_when_they_are_needed_and_kept_no_longer(monkeypatch):
    """The lexicon forgets words, too."""
    monkeypatch.setattr(lexicon, "MAX_WORDS", 100)
    words = Lexicon()
    texts = ("".join(f"a b c {n}.{i}\n" for i in range(10)).encode() for n in range(1000))
    stream = WindowStream(texts, 3, 7, words)
    for _ in stream.fill_rows():
        assert len(stream.text) < 100 and stream.text.max() < 150
    texts = iter([b"a a a a\n"] * 20)
    next(WindowStream(texts, 2, 25, Lexicon()).fill_rows())
    assert len(list(texts)) >= 10


def test_words_are_numbered_anew_in_the_order_of_the_streams(monkeypatch):
    """A resumed run must number them as the run that was killed."""
    monkeypatch.setattr(lexicon, "MAX_WORDS", 0)
    words = Lexicon()
    texts = [iter([f"word{i}\n".encode()]) for i in range(6)]
    streams = [WindowStream(text, 1, 1, words, contiguous=True) for text in texts]
    words.forget()
    assert [stream.text.tolist() for stream in streams] == [[0, 3 + i, 0] for i in range(6)]
