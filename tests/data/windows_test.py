import itertools
import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from allennlp_elmo_plugin.data.lexicon import Lexicon
from allennlp_elmo_plugin.data.windows import WindowStream, check_window_order

REFERENCE = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "reference" / "windows.json").read_text("utf-8")
)


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: case["name"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_windows_equal_bilm_tf(case, direction):
    # bilm-tf takes its files from the end of the list.
    texts = [case["text"][file].encode() for file in reversed(case["files_in_glob_order"])]
    endless = "endless" in case["name"]
    lexicon = Lexicon()
    words = {}
    for text in ["<S> </S>", *case["text"].values()]:
        for word in text.split():
            words[int(lexicon.number(f"{word}\n".encode())[0])] = word
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
        inputs, targets = (
            [[words[number] for number in row] for row in side.tolist()] for side in window
        )
        assert inputs == theirs["input" + suffix]
        targets = [[w if w in known else "<UNK>" for w in row] for row in targets]
        assert targets == theirs["target" + suffix]


def test_reads_no_further_than_needed():
    def endless():
        for n in itertools.count():
            assert n < 10
            yield b"a a a a\n"

    next(WindowStream(endless(), 2, 25, Lexicon()).windows())


@pytest.mark.parametrize(
    "window, previous, problem",
    [
        ([[7, 0, 2], [7, 1, 2]], None, None),
        ([[7, 0, 2], [7, 1, 2]], 6, None),
        ([[0, 0, 1]], 6, None),
        ([[0, 0, 3], [0, 1, 3]], None, "window 0 has other rows"),
        ([[0, 1, 2], [0, 0, 2]], None, "window 0 has other rows"),
        ([[0, 0, 2], [4, 1, 2]], None, "window 0 has other rows"),
        ([[4, 0, 2], [4, 1, 2]], 2, "window 4 follows window 2"),
        ([[4, 0, 2], [4, 1, 2]], 4, "window 4 follows window 4"),
    ],
)
def test_check_window_order(window, previous, problem):
    with pytest.raises(ValueError, match=problem) if problem else nullcontext():
        assert check_window_order(np.array(window), previous) == window[0][0]
