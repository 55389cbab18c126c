import functools
import gzip
import itertools
import json
import random
from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader
from allennlp.data.dataset_readers.dataset_reader import DistributedInfo

from allennlp_elmo_plugin.bilm.characters import words_to_character_ids
from allennlp_elmo_plugin.plugin.components.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.text import corpus, word_ids
from allennlp_elmo_plugin.text.corpus import find_files, read_text
from allennlp_elmo_plugin.training import text_batches
from tests.support.corpora import (
    padded_ids,
    plain_windows,
    random_lines,
    vocabulary_of,
    write_corpus,
)

FIXTURE = Path(__file__).parents[2] / "fixtures" / "reference" / "windows.json"
REFERENCE = json.loads(FIXTURE.read_text("utf-8"))
SUFFIXES = {"forward": "", "backward": "_reverse"}
assert_equal = functools.partial(torch.testing.assert_close, rtol=0, atol=0)


def batches_of(reader, path, epoch=0, skip=0, vocab=None):
    return reader.text_batches(path, vocab).batches(epoch, skip)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(corpus, "BLOCK_BYTES", 300)
    monkeypatch.setattr(corpus, "READ_BYTES", 100)


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: case["name"])
def test_batches_are_those_of_bilm_tf(case, tmp_path):
    # bilm-tf reads its files from last to first, and again if it is endless.
    content = "".join(case["text"][file] for file in reversed(case["files_in_glob_order"]))
    is_endless = "endless" in case["name"]
    (tmp_path / "text").write_text(content * (9 if is_endless else 1), "utf-8")
    reader = TruncatedBpttLmReader(case["batch_size"], case["num_steps"], None)
    batches = batches_of(reader, tmp_path / "text", vocab=vocabulary_of(REFERENCE["vocab"]))
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
        lines = ["a", *random_lines(self.random)]
        self.vocab, self.corpus = vocabulary_of(lines), write_corpus(folder, lines)
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

    def reader(self, n_processes=1, rank=0, **changes):
        settings = {**self.settings, **changes}
        reader = TruncatedBpttLmReader(self.n_rows // n_processes, self.num_steps, **settings)
        reader._set_distributed_info(DistributedInfo(n_processes, rank))
        return reader

    def read(self, skip=0, **changes):
        batches = batches_of(self.reader(**changes), self.corpus, self.epoch, skip, self.vocab)
        return list(batches)

    def windows(self):
        """For each window, what the rows of each direction read and predict."""
        windows = []
        for name in self.directions:
            seed = f"{self.settings['seed']} {self.epoch} {name}"
            shuffle = random.Random(seed) if self.order == "shuffle_sentences" else None
            lines = b"".join(read_text(find_files(self.corpus), shuffle=shuffle)).decode()
            how = name == "backward", self.settings["drop_last"], self.order == "contiguous"
            lines = lines.split("\n")[:-1]
            windows.append(plain_windows(lines, self.n_rows, self.num_steps, *how))
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
            ids, targets = padded_ids(rows, case.num_steps, case.vocab)
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


def test_reading_starts_after_any_batch_and_ends_by_max_instances(case):
    n_batches = len(case.batches)
    for skip in {0, case.random.randint(0, n_batches), n_batches}:
        assert_equal(case.read(skip), case.batches[skip:])
    if n_batches > 1:
        two_batches = {"max_instances": 3 * case.n_rows - 1}
        assert_equal(case.read(1, **two_batches), case.batches[1:2])
        assert case.reader(**two_batches).text_batches(case.corpus).count() == 2


def test_processes_read_their_rows_of_common_batches(case):
    n_processes = case.random.choice([n for n in (1, 2, 3, 5) if case.n_rows % n == 0])
    parts = [case.read(n_processes=n_processes, rank=rank) for rank in range(n_processes)]
    for batch, *of_ranks in zip(case.batches, *parts, strict=True):
        for name in batch.keys() - {"window"}:
            assert_equal(torch.cat([part[name] for part in of_ranks]), batch[name])
    if case.order != "shuffle_sentences":
        for rank in range(n_processes):
            n_batches = case.reader(n_processes, rank).text_batches(case.corpus).count()
            assert n_batches == len(case.batches)


def test_batches_of_a_large_text_are_estimated(tmp_path, monkeypatch):
    for number in range(10):
        (tmp_path / f"{number}").write_text("some words in a line\n" * 500)
    (tmp_path / "empty").touch()
    reader = TruncatedBpttLmReader(3, 4)
    exact = reader.text_batches(tmp_path).count()
    assert exact == len(list(batches_of(reader, tmp_path)))
    monkeypatch.setattr(text_batches, "_COUNTED_BYTES", 20_000)
    assert reader.text_batches(tmp_path).count() == pytest.approx(exact, rel=0.02)
    assert reader.text_batches(tmp_path).count() != exact


def test_what_is_refused_or_warned_of(tmp_path, caplog):
    path = tmp_path / "small.txt"
    path.write_text("a b c\n\nd\n")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b""))
    for settings in ({}, {"contiguous": True}):
        with pytest.raises(ValueError, match="small.txt is smaller .*3 rows of 3;"):
            list(batches_of(TruncatedBpttLmReader(3, 3, **settings), path))
    assert len(list(batches_of(TruncatedBpttLmReader(3, 3, drop_last=False), path))) == 2
    for skip in (0, 1, 2):
        list(batches_of(TruncatedBpttLmReader(1, 1), path, 0, skip, vocabulary_of(["x"])))
    assert caplog.text.count("small.txt: 100% of its words count as <UNK>") == 1
    for drop_last in (True, False):
        with pytest.raises(ValueError, match="a.gz"):
            list(batches_of(TruncatedBpttLmReader(3, drop_last=drop_last), tmp_path / "a.gz"))
    with pytest.raises(ConfigurationError, match='data loader "truncated_bptt"'):
        list(TruncatedBpttLmReader(4).read(str(path)))
    whole, flag = "it must be a whole number", "it must be true or false"
    for name, value, message in (
        ("batch_size", 0, "it must be at least 1"),
        ("num_steps", None, whole),
        ("seed", 1.5, whole),
        ("seed", True, whole),
        ("shuffle_sentences", "false", flag),
        ("contiguous", 1, flag),
        ("drop_last", None, flag),
        ("encoding_errors", "Strict", "use strict or replace"),
        ("max_characters_per_token", "50", f"{whole} or null"),
    ):
        with pytest.raises(ConfigurationError, match=f"{name} is {value!r}; {message}"):
            TruncatedBpttLmReader(**{"batch_size": 4, name: value}).text_batches(path)
    for name, value, least in (("max_rows", 3, 4), ("batches_per_epoch", -3, 1)):
        with pytest.raises(ValueError, match=f"{name} is {value}; it must be at least {least}"):
            text_batches.TextBatches(path, batch_size=4, **{name: value})
    with pytest.raises(ConfigurationError, match="manual_distributed_sharding"):
        settings = {"type": "truncated_bptt_lm", "batch_size": 4}
        DatasetReader.from_params(Params({**settings, "manual_distributed_sharding": True}))
