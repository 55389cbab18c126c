import functools
import gzip
import itertools
import json
import random
import sys
import threading

import pytest
import torch

from allennlp_elmo_plugin.bilm.characters import words_to_character_ids
from allennlp_elmo_plugin.text import corpus, word_ids
from allennlp_elmo_plugin.text.corpus import find_files, read_text
from allennlp_elmo_plugin.text.windows import WindowStream
from allennlp_elmo_plugin.training import TextBatches, text_batches
from tests.support import corpora
from tests.support.bilm_tf import REFERENCE, WORDS

RUNS = json.loads((REFERENCE / "windows.json").read_text("utf-8"))
SUFFIXES = {"forward": "", "backward": "_reverse"}
assert_equal = functools.partial(torch.testing.assert_close, rtol=0, atol=0)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(corpus, "BLOCK_BYTES", 300)
    monkeypatch.setattr(corpus, "READ_BYTES", 100)


@pytest.mark.parametrize("case", RUNS["cases"], ids=lambda case: case["name"])
def test_batches_are_those_of_bilm_tf(case, tmp_path):
    # bilm-tf reads its files from last to first, and again if it is endless.
    content = "".join(case["text"][file] for file in reversed(case["files_in_glob_order"]))
    is_endless = "endless" in case["name"]
    (tmp_path / "text").write_text(content * (9 if is_endless else 1), "utf-8")
    settings = RUNS["vocab"], case["batch_size"], case["num_steps"], None
    batches = TextBatches(tmp_path / "text", *settings).batches()
    if is_endless:
        batches = itertools.islice(batches, len(case["batches"]))
    for batch, theirs in zip(batches, case["batches"], strict=True):
        for suffix in SUFFIXES.values():
            assert batch[f"tokens{suffix}"].tolist() == theirs[f"token_ids{suffix}"]
            assert batch[f"targets{suffix}"].tolist() == theirs[f"next_token_id{suffix}"]


class Case:
    """A random text, and random settings with which it is read."""

    def __init__(self, seed, folder):
        self.random = random.Random(seed)
        choose = self.random.choice
        lines = ["a", *corpora.random_lines(self.random)]
        self.words, self.corpus = corpora.words_of(lines), corpora.write_corpus(folder, lines)
        self.n_rows, self.num_steps, self.epoch = map(choose, (range(1, 6), range(1, 9), range(4)))
        self.order = choose(["in order", "shuffle_sentences", "contiguous"])
        self.directions = choose([["forward"], *[["forward", "backward"]] * 3])
        self.settings = {
            "max_characters_per_token": None,
            "seed": seed,
            "drop_last": choose([False, True]),
            "bidirectional": "backward" in self.directions,
            **{name: name == self.order for name in ("shuffle_sentences", "contiguous")},
        }

    def text(self, world_size=1, **changes):
        settings = {**self.settings, "world_size": world_size, **changes}
        sizes = self.n_rows // world_size, self.num_steps
        return TextBatches(self.corpus, self.words, *sizes, **settings)

    def read(self, skip=0, **changes):
        return list(self.text(**changes).batches(self.epoch, skip))

    def windows(self):
        """For each window, what the rows of each direction read and predict."""
        windows = []
        for name in self.directions:
            seed = f"{self.settings['seed']} {self.epoch} {name}"
            shuffle = random.Random(seed) if self.order == "shuffle_sentences" else None
            lines = b"".join(read_text(find_files(self.corpus), shuffle=shuffle)).decode()
            how = name == "backward", self.settings["drop_last"], self.order == "contiguous"
            lines = lines.split("\n")[:-1]
            windows.append(corpora.plain_windows(lines, self.n_rows, self.num_steps, *how))
        nothing = [[[]] * self.n_rows] * 2
        n_windows = (min if self.settings["drop_last"] else max)(map(len, windows))
        padded = itertools.zip_longest(*windows, fillvalue=nothing)
        return [dict(zip(self.directions, rows)) for rows in itertools.islice(padded, n_windows)]


@pytest.fixture(params=range(40))
def case(request, tmp_path, monkeypatch):
    case = Case(request.param, tmp_path / "corpus")
    case.batches = case.read()
    # The batches that a test reads must be the same with a small cache of words.
    monkeypatch.setattr(word_ids, "MAX_WORDS", 10)
    return case


def test_batches_are_the_windows_of_the_text(case):
    expected = []
    for number, window in enumerate(case.windows()):
        expected.append({"window": torch.full((case.n_rows,), number)})
        for name, rows in window.items():
            ids, targets = corpora.padded_ids(rows, case.num_steps, case.words)
            expected[-1] |= {f"tokens{SUFFIXES[name]}": ids, f"targets{SUFFIXES[name]}": targets}
    assert_equal(case.batches, expected)


def test_words_are_spelt_in_characters(case):
    spelt = case.read(max_characters_per_token=9)
    for batch, same, window in zip(spelt, case.batches, case.windows(), strict=True):
        for name, (rows, _) in window.items():
            targets = batch[f"targets{SUFFIXES[name]}"]
            assert torch.equal(targets, same[f"targets{SUFFIXES[name]}"])
            ids = batch["character_ids"][batch[f"tokens{SUFFIXES[name]}"]]
            assert not ids[targets == -100].any()
            expected = words_to_character_ids(list(itertools.chain(*rows)), 9)
            assert ids[targets != -100].tolist() == expected.tolist()


def test_reading_starts_after_any_batch_and_ends_by_max_rows(case):
    n_batches = len(case.batches)
    for skip in {0, case.random.randint(0, n_batches), n_batches}:
        assert_equal(case.read(skip), case.batches[skip:])
    if n_batches > 1:
        two_batches = {"max_rows": 3 * case.n_rows - 1}
        assert_equal(case.read(1, **two_batches), case.batches[1:2])
        assert case.text(**two_batches).count() == 2


def test_processes_read_their_rows_of_common_batches(case):
    n_processes = case.random.choice([n for n in (1, 2, 3, 5) if case.n_rows % n == 0])
    parts = [case.read(world_size=n_processes, rank=rank) for rank in range(n_processes)]
    for batch, *of_ranks in zip(case.batches, *parts, strict=True):
        for name in batch.keys() - {"window"}:
            assert_equal(torch.cat([part[name] for part in of_ranks]), batch[name])
    if case.order != "shuffle_sentences":
        for rank in range(n_processes):
            assert case.text(n_processes, rank=rank).count() == len(case.batches)


def test_batches_of_a_large_text_are_estimated(tmp_path, monkeypatch):
    for number in range(10):
        (tmp_path / f"{number}").write_text("some words in a line\n" * 500)
    (tmp_path / "empty").touch()
    text = TextBatches(tmp_path, None, 3, 4)
    exact = text.count()
    assert exact == len(list(text))
    monkeypatch.setattr(text_batches, "_COUNTED_BYTES", 20_000)
    assert text.count() == pytest.approx(exact, rel=0.02) and text.count() != exact


@pytest.fixture
def make(tmp_path):
    """Make the batches of a corpus."""
    settings = {"batch_size": 4, "num_steps": 9, "max_characters_per_token": None}
    settings["shuffle_sentences"] = True
    folder = corpora.write_corpus(tmp_path / "corpus")
    return functools.partial(TextBatches, folder, corpora.words_of(corpora.LINES), **settings)


@pytest.mark.parametrize("n_batches", [None, 1, 5, 1000])
@pytest.mark.parametrize("read_ahead", [False, True])
def test_epochs_are_passes_over_the_text(make, n_batches, read_ahead):
    """With `batches_per_epoch`, an epoch continues where the last one stopped."""
    text = make(batches_per_epoch=n_batches, read_ahead=read_ahead)
    assert len(text) == (n_batches or text.count())  # an estimate
    batches = itertools.chain.from_iterable(map(make().batches, itertools.count()))
    for _ in range(1 if n_batches == 1000 else 3):
        read = list(text)
        assert_equal(read, list(itertools.islice(batches, len(read))))
        assert len(read) == len(text) and len(read) == (n_batches or len(read))


@pytest.mark.parametrize("settings", [{}, {"batches_per_epoch": 17}, {"read_ahead": True}])
def test_reading_continues_where_another_was(make, settings):
    text = make(**settings)
    epochs = [list(text) for _ in range(5)]
    text, resumed = make(**settings), make(**settings)
    for epoch, expected in enumerate(epochs[:3]):
        batches = iter(text)
        for n_read in range(len(expected) + 1):
            if n_read in (0, 1, 9, len(expected) - 1, len(expected)):
                state = text.state_dict()
                resumed.load_state_dict(state)
                if n_read < len(expected):
                    assert abs(len(resumed) + n_read - len(expected)) <= 1
                    assert_equal(list(itertools.islice(resumed, 1)), expected[n_read : n_read + 1])
                assert_equal(list(resumed), expected[n_read:])
                assert_equal(list(resumed), epochs[epoch + 1])
            next(batches, None)
    assert list(state) == ["epoch", "n_windows", "n_given", "digest"] and len(state["digest"]) == 5


def test_other_files_than_in_the_checkpoint(make, tmp_path):
    state = make().state_dict()
    (tmp_path / "corpus" / "0.txt").rename(tmp_path / "corpus" / "new")
    with pytest.raises(ValueError, match="0.txt, .*new changed.*put the files back"):
        make().load_state_dict(state)


@pytest.mark.parametrize("read_ahead", [False, True])
def test_no_thread_outlives_a_pass_that_is_given_up_or_fails(make, tmp_path, read_ahead):
    n_threads = threading.active_count()
    (tmp_path / "corpus" / "9.txt").write_bytes(b"\xff\n" * 99)
    text = make(num_steps=5, shuffle_sentences=False, read_ahead=read_ahead)
    batches = iter(text)
    first = next(batches)
    assert threading.active_count() == n_threads + read_ahead
    batches.close()
    assert threading.active_count() == n_threads
    batches = iter(text)  # from the start
    assert_equal(next(batches), first)
    with pytest.raises(ValueError, match="9.txt, line 1"):
        list(batches)
    assert threading.active_count() == n_threads


def test_what_is_refused_or_warned_of(tmp_path, caplog):
    path = tmp_path / "small.txt"
    path.write_text("a b a\n\nb\n")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b""))
    for settings in ({}, {"contiguous": True}):
        with pytest.raises(ValueError, match="small.txt is smaller .*3 rows of 3;"):
            list(TextBatches(path, None, 3, 3, **settings))
    assert len(list(TextBatches(path, None, 3, 3, drop_last=False))) == 2
    for skip in (0, 1, 2):
        list(TextBatches(path, corpora.words_of(["x"]), 1, 1).batches(0, skip))
    assert caplog.text.count("small.txt: 100% of its words count as <UNK>") == 1
    for drop_last in (True, False):
        with pytest.raises(ValueError, match="a.gz"):
            list(TextBatches(tmp_path / "a.gz", drop_last=drop_last))
    whole, flag = "it must be a whole number", "it must be true or false"
    for name, value, message in (
        ("batch_size", 0, "it must be at least 1"),
        ("batches_per_epoch", -3, "it must be at least 1"),
        ("max_rows", 3, "it must be at least 4"),
        ("num_steps", None, whole),
        ("seed", 1.5, whole),
        ("seed", True, whole),
        ("shuffle_sentences", "false", flag),
        ("contiguous", 1, flag),
        ("drop_last", None, flag),
        ("encoding_errors", "Strict", "use strict or replace"),
        ("max_characters_per_token", "50", f"{whole} or null"),
    ):
        with pytest.raises(ValueError, match=f"{name} is {value!r}; {message}"):
            TextBatches(path, **{"batch_size": 4, name: value})


def test_a_pass_may_be_freed_in_the_thread_that_reads_ahead(tmp_path, monkeypatch):
    """Where the collector of garbage may run."""
    errors, passes, is_read, is_freed = [], [], threading.Event(), threading.Event()
    fill_rows = WindowStream.fill_rows

    def free_the_pass(self):
        for number, rows in enumerate(fill_rows(self)):
            if number == 5 and is_read.wait(5.0):
                passes.clear()  # the last reference
                is_freed.set()
            yield rows

    monkeypatch.setattr(sys, "unraisablehook", errors.append)
    monkeypatch.setattr(WindowStream, "fill_rows", free_the_pass)
    text = corpora.write_corpus(tmp_path / "corpus")
    passes.append(iter(TextBatches(text, WORDS, 2, 3, read_ahead=True)))
    next(passes[0])
    is_read.set()
    assert is_freed.wait(5.0) and errors == []
