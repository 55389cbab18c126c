import functools
import gzip
import itertools
import json
import random
from pathlib import Path

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.dataset_readers.dataset_reader import DistributedInfo

from allennlp_elmo_plugin.bilm.characters import words_to_character_ids
from allennlp_elmo_plugin.plugin.components import truncated_bptt_reader
from allennlp_elmo_plugin.plugin.components.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.text import corpus, lexicon
from allennlp_elmo_plugin.text.corpus import find_files, read_text
from allennlp_elmo_plugin.text.lexicon import Lexicon
from allennlp_elmo_plugin.text.windows import WindowStream
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
    batches = reader.batches(tmp_path / "text", vocab=vocabulary_of(REFERENCE["vocab"]))
    if is_endless:
        batches = itertools.islice(batches, len(case["batches"]))
    for batch, theirs in zip(batches, case["batches"], strict=True):
        for suffix in SUFFIXES.values():
            assert batch[f"tokens{suffix}"].tolist() == theirs[f"token_ids{suffix}"]
            assert batch[f"targets{suffix}"].tolist() == theirs[f"next_token_id{suffix}"]


@pytest.mark.parametrize("seed", range(40))
def test_batches_are_the_windows_of_the_text(tmp_path, monkeypatch, seed):
    """In every epoch, from every batch, with a small cache of words, and in several processes."""
    random_ = random.Random(seed)
    lines = random_lines(random_)
    vocab = vocabulary_of(lines)
    corpus = write_corpus(tmp_path / "corpus", lines)
    monkeypatch.setattr(lexicon, "_N_SLOTS_LOG2", random_.choice([1, 6, 19]))
    n_rows, num_steps = shape = random_.randint(1, 5), random_.randint(1, 8)
    order = random_.choice(["", "shuffle_sentences", "contiguous"])
    drop_last, bidirectional = random_.random() < 0.5, random_.random() < 0.8
    settings = {"num_steps": num_steps, "drop_last": drop_last, "seed": seed, order: True}
    settings.update(bidirectional=bidirectional, max_characters_per_token=None)
    settings.pop("", None)
    epoch = random_.randint(0, 3)
    try:
        whole = list(TruncatedBpttLmReader(n_rows, **settings).batches(corpus, epoch, 0, vocab))
    except ConfigurationError as error:
        assert "is smaller than one batch" in str(error)
        whole = []
    directions = list(SUFFIXES)[: 1 + bidirectional]
    windows = {}
    for direction in directions:
        shuffle = random.Random(f"{seed} {epoch} {direction}") if "shuffle" in order else None
        texts = b"".join(read_text(find_files(corpus), shuffle=shuffle)).decode()
        how = direction == "backward", drop_last, order == "contiguous"
        windows[direction] = plain_windows(texts.split("\n")[:-1], *shape, *how)
    n_batches = (min if drop_last else max)(map(len, windows.values()))
    assert len(whole) == n_batches
    if not whole:
        return
    for expected in windows.values():
        expected += [([[]] * n_rows, [[]] * n_rows)] * (n_batches - len(expected))
    for number, batch in enumerate(whole):
        expected = {"window": torch.tensor([[number, row, n_rows] for row in range(n_rows)])}
        for direction in directions:
            tokens, targets = padded_ids(windows[direction][number], num_steps, vocab)
            expected[f"tokens{SUFFIXES[direction]}"] = tokens
            expected[f"targets{SUFFIXES[direction]}"] = targets
        assert_equal(batch, expected)

    monkeypatch.setattr(lexicon, "MAX_WORDS", 10)
    for skip in {0, random_.randint(0, n_batches), n_batches}:
        reader = TruncatedBpttLmReader(n_rows, **settings)
        assert_equal(list(reader.batches(corpus, epoch, skip, vocab)), whole[skip:])
    if n_batches > 1:
        reader = TruncatedBpttLmReader(n_rows, **settings, max_instances=3 * n_rows - 1)
        assert_equal(list(reader.batches(corpus, epoch, 1, vocab)), whole[1:2])
        assert reader.count_batches(corpus) == 2

    reader = TruncatedBpttLmReader(n_rows, **{**settings, "max_characters_per_token": 9})
    batches = reader.batches(corpus, epoch, 0, vocab)
    for number, (batch, same) in enumerate(zip(batches, whole, strict=True)):
        for direction in directions:
            suffix = SUFFIXES[direction]
            ids, targets = batch[f"tokens{suffix}"], batch[f"targets{suffix}"]
            assert torch.equal(targets, same[f"targets{suffix}"]) and ids.dtype == torch.long
            words = [word for row in windows[direction][number][0] for word in row]
            assert ids[targets != -100].tolist() == words_to_character_ids(words, 9).tolist()
            assert not ids[targets == -100].any()

    n_processes = random_.choice([n for n in (1, 2, 3, 5) if n_rows % n == 0])
    parts = []
    for rank in range(n_processes):
        reader = TruncatedBpttLmReader(n_rows // n_processes, **settings)
        reader._set_distributed_info(DistributedInfo(n_processes, rank))
        parts.append(list(reader.batches(corpus, epoch, 0, vocab)))
        assert order == "shuffle_sentences" or reader.count_batches(corpus) == n_batches
    for batch, *of_ranks in zip(whole, *parts, strict=True):
        for name in batch.keys() - {"window"}:
            assert torch.equal(torch.cat([each[name] for each in of_ranks]), batch[name])


def test_lines_are_read_when_they_are_needed_and_kept_no_longer(monkeypatch):
    """The lexicon forgets words, too."""
    monkeypatch.setattr(lexicon, "MAX_WORDS", 100)
    words = Lexicon()
    texts = ("".join(f"a b c {n}.{i}\n" for i in range(10)).encode() for n in range(1000))
    stream = WindowStream(texts, 3, 7, words)
    for _ in stream.fill_rows():
        assert len(stream.text) < 100 and len(words._numbers) < 150
    texts = iter([b"a a a a\n"] * 20)
    next(WindowStream(texts, 2, 25, Lexicon()).windows())
    assert len(list(texts)) >= 10


def test_batches_of_a_large_text_are_estimated(tmp_path, monkeypatch):
    for number in range(10):
        (tmp_path / f"{number}").write_text("some words in a line\n" * 500)
    (tmp_path / "empty").touch()
    reader = TruncatedBpttLmReader(3, 4)
    exact = reader.count_batches(tmp_path)
    assert exact == len(list(reader.batches(tmp_path)))
    monkeypatch.setattr(truncated_bptt_reader, "_COUNTED_BYTES", 20_000)
    assert reader.count_batches(tmp_path) == pytest.approx(exact, rel=0.02)
    assert reader.count_batches(tmp_path) != exact


def test_what_is_refused(tmp_path):
    path = tmp_path / "small.txt"
    path.write_text("a b c\n\nd\n")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b""))
    for settings in ({}, {"contiguous": True}):
        with pytest.raises(ConfigurationError, match="small.txt is smaller .*3 rows of 3;"):
            list(TruncatedBpttLmReader(3, 3, **settings).batches(path))
    assert len(list(TruncatedBpttLmReader(3, 3, drop_last=False).batches(path))) == 2
    for drop_last in (True, False):
        with pytest.raises(ConfigurationError, match="a.gz"):
            list(TruncatedBpttLmReader(3, drop_last=drop_last).batches(tmp_path / "a.gz"))
    with pytest.raises(ConfigurationError, match='data loader "truncated_bptt"'):
        list(TruncatedBpttLmReader(4).read(str(path)))
    for name, value in itertools.product(("batch_size", "num_steps"), (0, None)):
        with pytest.raises(ConfigurationError, match=f"{name} is {value}, but must be at least 1"):
            TruncatedBpttLmReader(**{"batch_size": 4, name: value})
