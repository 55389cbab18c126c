import itertools
import random

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.data.contiguous_rows import (
    ContiguousWindowStream,
    count_contiguous_windows,
)
from allennlp_elmo_plugin.data.lexicon import Lexicon
from tests.support.corpora import ListedSentences

DIRECTIONS = ("forward", "backward")


def random_sentences(seed):
    """Some without words, and some with a word that looks like a mark."""
    random_ = random.Random(seed)
    return [
        [random_.choice("abcde") for _ in range(random_.choice([0, 1, 5, 20]))] + ["</S>"] * (i % 2)
        for i in range(random_.randint(1, 40))
    ]


def plain_windows(sentences, batch_size, num_steps, direction, drop_last):
    """Join all lines, cut the text into rows, and each row into windows."""
    inputs, targets = [], []
    for sentence in sentences if direction == "forward" else reversed(sentences):
        marked = ["<S>", *sentence, "</S>"]
        if direction == "backward":
            marked.reverse()
        inputs += marked[:-1]
        targets += marked[1:]
    bounds = [row * len(inputs) // batch_size for row in range(batch_size + 1)]
    rows = [slice(*some) for some in zip(bounds, bounds[1:])]
    windows = []
    for start in range(0, len(inputs), num_steps):
        step = slice(start, start + num_steps)
        window = ([inputs[row][step] for row in rows], [targets[row][step] for row in rows])
        shortest, longest = (f(map(len, window[0])) for f in (min, max))
        if not longest or (drop_last and shortest < num_steps):
            break
        windows.append(window)
    return windows


def words(windows):
    return [tuple(window.words()) for window in windows]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_windows(seed, drop_last):
    sentences = random_sentences(seed)
    shape = 1 + seed % 5, 1 + seed % 7
    expected = [
        tuple(tuple(window) for window in pair)
        for pair in zip(*(plain_windows(sentences, *shape, d, drop_last) for d in DIRECTIONS))
    ]
    n_pairs = sum(len(sentence) + 1 for sentence in sentences)
    assert count_contiguous_windows(n_pairs, *shape, drop_last=drop_last) == len(expected)

    def make(directions=DIRECTIONS, **kwargs):
        listed = ListedSentences(sentences, 1 + seed % 3)
        kwargs = {"directions": directions, "drop_last": drop_last, **kwargs}
        return ContiguousWindowStream(listed, *shape, **kwargs)

    stream = make()
    made = [tuple(map(tuple, words(windows))) for windows in stream]
    assert made == expected
    n_read = sum(len(row) for (inputs, _), _ in made for row in inputs)
    assert stream.n_dropped == n_pairs - n_read
    if not drop_last:
        assert n_read == n_pairs

    # One direction, and some of the rows.
    for i, direction in enumerate(DIRECTIONS):
        first, last = seed % shape[0], shape[0]
        made = [words(windows) for windows in make([direction], rows=range(first, last))]
        assert made == [
            [(inputs[first:last], targets[first:last])]
            for inputs, targets in (pair[i] for pair in expected)
        ]

    # From everywhere.
    stream = make()
    for n_read in range(len(expected) + 1):
        resumed = make()
        resumed.load_state_dicts(stream.state_dicts())
        made = [tuple(map(tuple, words(windows))) for windows in resumed]
        assert made == expected[n_read:]
        next(stream, None)


def test_example():
    sentences = [["a", "b"], [], ["c"]]
    stream = ContiguousWindowStream(ListedSentences(sentences), 2, 2, directions=DIRECTIONS)
    (forward, backward), *_ = stream
    assert forward.words() == [[["<S>", "a"], ["<S>", "<S>"]], [["a", "b"], ["</S>", "c"]]]
    assert backward.words() == [[["</S>", "c"], ["</S>", "b"]], [["c", "<S>"], ["b", "a"]]]


def test_other_text():
    state = ContiguousWindowStream(ListedSentences([["a"], ["b"]]), 1, 1).state_dicts()
    other = ContiguousWindowStream(ListedSentences([["a"], ["c"]]), 1, 1)
    with pytest.raises(ConfigurationError, match="text has changed"):
        other.load_state_dicts(state)


@pytest.mark.parametrize("sentences", [[], [[]]])
def test_hardly_anything_to_read(sentences):
    for drop_last in (True, False):
        stream = ContiguousWindowStream(ListedSentences(sentences), 3, 2, drop_last=drop_last)
        assert len(list(itertools.islice(stream, 5))) == (0 if drop_last else len(sentences))


def test_words_stay_in_the_lexicon(monkeypatch):
    monkeypatch.setattr("allennlp_elmo_plugin.data.lexicon.MAX_WORDS", 3)
    lexicon = Lexicon()
    stream = ContiguousWindowStream(ListedSentences([list("abcdefgh")]), 1, 2, lexicon=lexicon)
    assert lexicon.is_full
    assert sum((window.words()[1][0] for (window,) in stream), []) == list("abcdefgh")
