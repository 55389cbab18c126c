import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest

from allennlp_elmo_plugin.data.lexicon import Lexicon
from allennlp_elmo_plugin.data.windows import WindowStream, check_window_order, count_windows
from tests.support.corpora import ListedSentences, WordWindow, window_stream, word_windows

REFERENCE = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "reference" / "windows.json").read_text("utf-8")
)
SENTENCES = [["a", "b", "c"], [], ["d"], ["e", "f", "g", "h", "i", "j"]]


def pairs_of(sentences, reverse=False):
    """What has to come out, in no order."""
    pairs = []
    for sentence in sentences:
        marked = ["<S>", *sentence, "</S>"]
        marked = marked[::-1] if reverse else marked
        pairs += zip(marked[:-1], marked[1:])
    return sorted(pairs)


def random_sentences(seed):
    random_ = random.Random(seed)
    return [
        [f"{i}.{j}" for j in range(random_.choice([0, 1, 5, 20]))]
        for i in range(random_.randint(1, 40))
    ]


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: case["name"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "backward"])
def test_windows_equal_bilm_tf(case, reverse):
    # bilm-tf takes its files from the end of the list.
    lines = [
        line
        for file in reversed(case["files_in_glob_order"])
        for line in case["text"][file].split("\n")[:-1]
    ]
    sentences = [line.split() for line in lines]
    endless = "endless" in case["name"]
    stream = itertools.cycle(sentences) if endless else sentences
    made = word_windows(stream, case["batch_size"], case["num_steps"], reverse=reverse)
    batches = list(itertools.islice(made, len(case["batches"]) if endless else None))

    known = set(REFERENCE["vocab"])
    suffix = "_reverse" if reverse else ""
    assert len(batches) == len(case["batches"])
    for ours, theirs in zip(batches, case["batches"]):
        assert ours.inputs == theirs["input" + suffix]
        targets = [[w if w in known else "<UNK>" for w in row] for row in ours.targets]
        assert targets == theirs["target" + suffix]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("reverse", [False, True])
def test_without_drop_last_every_pair_comes_once(seed, reverse):
    sentences = random_sentences(seed)
    batch_size, num_steps = 1 + seed % 4, 1 + seed % 7
    made = list(word_windows(sentences, batch_size, num_steps, reverse=reverse, drop_last=False))
    pairs = []
    for window in made:
        assert len(window.inputs) == len(window.targets) == batch_size
        for inputs, targets in zip(*window):
            assert len(inputs) == len(targets) <= num_steps
            pairs += zip(inputs, targets)
    assert sorted(pairs) == pairs_of(sentences, reverse)
    # The tail only comes after what is given with drop_last.
    stream = window_stream(sentences, batch_size, num_steps, reverse=reverse)
    full = [WordWindow(*window.words()) for (window,) in stream]
    assert made[: len(full)] == full
    assert stream.n_dropped == len(pairs) - len(full) * batch_size * num_steps


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_both_directions_of_one_stream(seed, drop_last):
    """As two streams of the same sentences, however many of these are read at once."""
    sentences = random_sentences(seed)
    shape = 1 + seed % 5, 1 + seed % 7
    forward, backward = (
        list(word_windows(sentences, *shape, reverse=reverse, drop_last=drop_last))
        for reverse in (False, True)
    )
    for n_at_once in (1, 3, 100):
        stream = WindowStream(
            ListedSentences(sentences, n_at_once),
            *shape,
            directions=("forward", "backward"),
            drop_last=drop_last,
        )
        both = [[tuple(window.words()) for window in windows] for windows in stream]
        assert both == [list(pair) for pair in zip(forward, backward)]


def test_a_full_lexicon_changes_nothing(monkeypatch):
    monkeypatch.setattr("allennlp_elmo_plugin.data.lexicon.MAX_WORDS", 30)
    sentences = [[f"{i % 7}", *(f"{i}.{j}" for j in range(i % 40))] for i in range(200)]
    lexicon = Lexicon()
    expected, streams = [], []
    for reverse, direction in ((False, "forward"), (True, "backward")):
        expected.append(list(word_windows(sentences, 3, 7, reverse=reverse)))
        listed = ListedSentences(sentences)
        streams.append(WindowStream(listed, 3, 7, directions=[direction], lexicon=lexicon))
    n_forgotten = 0
    for pair in zip(*expected):
        windows = [next(stream)[0] for stream in streams]
        assert [tuple(window.words()) for window in windows] == list(pair)
        if lexicon.is_full:
            WindowStream.forget_words(lexicon, streams)
            n_forgotten += 1
    assert n_forgotten > 10
    assert len(lexicon._words) < 400 < len({word for words in sentences for word in words}) / 5


def test_one_long_sentence_has_a_tail_of_several_windows():
    made = list(word_windows([list("abcdefg")], 2, 3, drop_last=False))
    assert [window.inputs for window in made] == [
        [["<S>", "a", "b"], []],
        [["c", "d", "e"], []],
        [["f", "g"], []],
    ]
    assert made[-1].targets == [["g", "</S>"], []]


def test_nothing_to_read():
    assert list(word_windows([], 2, 3)) == []
    assert list(word_windows([], 2, 3, drop_last=False)) == []


def test_reads_no_further_than_needed():
    def endless():
        for n in itertools.count():
            assert n < 10
            yield ["a"] * 4

    next(word_windows(endless(), 2, 25))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_count_windows(seed, drop_last):
    sentences = random_sentences(seed)
    shape = 1 + seed % 5, 1 + seed % 9
    made = list(word_windows(sentences, *shape, drop_last=drop_last))
    assert count_windows(map(len, sentences), *shape, drop_last=drop_last) == len(made)


class TestCheckWindowOrder:
    def test_right_order(self):
        window = np.array([[7, 0, 2], [7, 1, 2]])
        assert check_window_order(window) == 7
        assert check_window_order(window, previous=6) == 7
        assert check_window_order(np.array([[0, 0, 1]]), previous=6) == 0

    @pytest.mark.parametrize(
        "window, previous, problem",
        [
            ([[0, 0, 3], [0, 1, 3]], None, "2 rows where the dataset reader made 3"),
            ([[0, 0, 1], [1, 0, 1]], None, "2 rows where the dataset reader made 1"),
            ([[0, 1, 2], [0, 0, 2]], None, "rows of a batch are not in the order"),
            ([[0, 0, 2], [4, 1, 2]], None, "rows of a batch are not in the order"),
            ([[4, 0, 2], [4, 1, 2]], 2, "window 4 follows window 2"),
            ([[4, 0, 2], [4, 1, 2]], 4, "window 4 follows window 4"),
        ],
    )
    def test_wrong_order(self, window, previous, problem):
        with pytest.raises(ValueError, match=problem) as error:
            check_window_order(np.array(window), previous)
        assert "batch_size" in str(error.value) and "shuffle false" in str(error.value)
