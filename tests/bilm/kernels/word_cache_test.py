import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels.word_cache import WordCache


class Encoder:
    """Remembers what it was asked for."""

    def __init__(self):
        self.words = []

    def vectors(self, words):
        return torch.tensor([[len(word), ord(word[0])] for word in words], dtype=torch.float)

    def look_up(self, cache, words):
        def encode(new):
            self.words.append(sorted(new))
            return self.vectors(new)

        result = cache.look_up(words, encode)
        assert torch.equal(result, self.vectors(words))


def test_computes_each_word_once():
    cache, encoder = WordCache(10), Encoder()
    encoder.look_up(cache, ["b", "a", "b"])
    encoder.look_up(cache, ["a", "cc", "a", "cc", "b"])
    encoder.look_up(cache, ["cc", "a"])
    assert encoder.words == [["a", "b"], ["cc"]]
    assert len(cache) == 3


def test_forgets_all_when_full():
    cache, encoder = WordCache(3), Encoder()
    encoder.look_up(cache, ["a", "b", "c"])
    encoder.look_up(cache, ["d", "a"])
    assert encoder.words == [["a", "b", "c"], ["a", "d"]]
    assert len(cache) == 2


def test_more_words_at_once_than_it_keeps():
    cache, encoder = WordCache(2), Encoder()
    encoder.look_up(cache, ["a", "b", "c"])
    encoder.look_up(cache, ["d"])
    assert encoder.words == [["a", "b", "c"], ["d"]]
    assert len(cache) == 1


def test_some_words_stay():
    cache, encoder = WordCache(3), Encoder()
    encoder.look_up(cache, ["a", "b"])
    cache.stay()
    encoder.look_up(cache, ["a", "c"])
    encoder.look_up(cache, ["d", "b"])  # one too many
    assert len(cache) == 3
    cache.forget()
    encoder.look_up(cache, ["b", "d", "a"])
    assert encoder.words == [["a", "b"], ["c"], ["d"], ["d"]]


@pytest.mark.parametrize("n", [1, 1000, 3000])
def test_grows(n):
    cache, encoder = WordCache(10_000), Encoder()
    words = ["a" * (i + 1) for i in range(n)]
    encoder.look_up(cache, words)
    encoder.look_up(cache, [*words, "b", "b"])
    assert encoder.words[1:] == [["b"]]
