import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest

from allennlp_elmo_plugin.data.lexicon import Lexicon
from allennlp_elmo_plugin.data.windows import WindowStream, check_window_order
from tests.support.corpora import plain_windows, random_lines

REFERENCE = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "reference" / "windows.json").read_text("utf-8")
)


def numbered(lines):
    """A lexicon, and the words by its numbers."""
    lexicon = Lexicon()
    words = dict.fromkeys(word for line in ["<S> </S>", *lines] for word in line.split())
    return lexicon, {int(lexicon.number(f"{word}\n".encode())[0]): word for word in words}


def words_of(window, words):
    return tuple([[words[i] for i in row if i] for row in side.tolist()] for side in window)


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: case["name"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_windows_equal_bilm_tf(case, direction):
    # bilm-tf takes its files from the end of the list.
    texts = [case["text"][file].encode() for file in reversed(case["files_in_glob_order"])]
    endless = "endless" in case["name"]
    lexicon, words = numbered(case["text"].values())
    stream = WindowStream(
        itertools.cycle(texts) if endless else texts,
        case["batch_size"],
        case["num_steps"],
        lexicon,
        directions=[direction],
    )
    made = list(itertools.islice(stream.windows(), len(case["batches"]) if endless else None))
    known = set(REFERENCE["vocab"])
    suffix = "_reverse" if direction == "backward" else ""
    assert len(made) == len(case["batches"])
    for (window,), theirs in zip(made, case["batches"]):
        inputs, targets = words_of(window, words)
        assert inputs == theirs["input" + suffix]
        targets = [[w if w in known else "<UNK>" for w in row] for row in targets]
        assert targets == theirs["target" + suffix]


@pytest.mark.parametrize("seed", range(40))
def test_windows_equal_plain_ones(seed):
    random_ = random.Random(seed)
    lines = random_lines(random_)
    shape = random_.randint(1, 5), random_.randint(1, 8)
    drop_last, contiguous = random_.random() < 0.5, random_.random() < 0.5
    expected = [
        plain_windows(lines, *shape, reverse, drop_last, contiguous) for reverse in (False, True)
    ]
    lexicon, words = numbered(lines)
    first, skip = random_.randrange(shape[0]), random_.randint(0, len(expected[0]))
    for returned in (None, range(first, shape[0])):
        rows = slice(0 if returned is None else first, None)
        texts = (f"{line}\n".encode() for line in lines)
        stream = WindowStream(
            texts,
            *shape,
            lexicon,
            directions=["forward", "backward"],
            drop_last=drop_last,
            contiguous=contiguous,
            returned=returned,
        )
        made = [tuple(words_of(window, words) for window in each) for each in stream.windows(skip)]
        assert made == [
            tuple((inputs[rows], targets[rows]) for inputs, targets in pair)
            for pair in list(zip(*expected))[skip:]
        ]


def test_only_the_lines_of_the_rows_are_kept():
    stream = WindowStream([b"a b c d\n" * 10] * 1000, 3, 7, Lexicon())
    assert max(len(stream.text) for _ in stream.fill_rows()) < 100


def test_reads_no_further_than_needed():
    def endless():
        for n in itertools.count():
            assert n < 10
            yield b"a a a a\n"

    next(WindowStream(endless(), 2, 25, Lexicon()).windows())


@pytest.mark.parametrize("number, previous", [(7, None), (7, 6), (0, 6), (0, None)])
def test_windows_in_order(number, previous):
    assert check_window_order(np.array([[number, 0, 2], [number, 1, 2]]), previous) == number


@pytest.mark.parametrize("previous", [2, 4, 5])
def test_windows_in_another_order(previous):
    with pytest.raises(ValueError, match=f'window 4 follows window {previous}. .*"truncated_bptt"'):
        check_window_order(np.array([[4, 0, 1]]), previous)
