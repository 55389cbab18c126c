import gzip
import random

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.dataset_readers.dataset_reader import DistributedInfo

from allennlp_elmo_plugin.bilm.characters import words_to_character_ids
from allennlp_elmo_plugin.data import lexicon, text, truncated_bptt_reader
from allennlp_elmo_plugin.data.text import find_files, read_text
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from tests.support.corpora import (
    LINES,
    equal,
    plain_windows,
    random_lines,
    vocabulary_of,
    words_of_batches,
    write_corpus,
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 300)
    monkeypatch.setattr(text, "READ_BYTES", 100)


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus")


def random_settings(random_):
    order = random_.choice([{}, {"shuffle_sentences": True}, {"contiguous": True}])
    return {
        "batch_size": random_.randint(1, 5),
        "num_steps": random_.randint(1, 8),
        "drop_last": random_.random() < 0.5,
        "bidirectional": random_.random() < 0.8,
        "seed": random_.randint(0, 9),
        **order,
    }


def lines_in_order(corpus, settings, epoch, direction):
    shuffle = None
    if settings.get("shuffle_sentences"):
        shuffle = random.Random(f"{settings['seed']} {epoch} {direction}")
    texts = read_text(find_files(corpus), shuffle=shuffle)
    return [line for each in texts for line in each.decode().split("\n")[:-1]]


def batches_of(reader, *args):
    """None of a text that is smaller than a batch."""
    try:
        return list(reader.batches(*args))
    except ConfigurationError as error:
        assert "is smaller than one batch" in str(error)
        return []


@pytest.mark.parametrize("seed", range(40))
def test_batches_are_the_windows_of_the_text(tmp_path, monkeypatch, seed):
    """Every pass, from everywhere, with words forgotten, and as a part of several processes'."""
    random_ = random.Random(seed)
    lines = random_lines(random_)
    vocab = vocabulary_of(lines)
    corpus = write_corpus(tmp_path / "corpus", [*lines, "last"])
    settings = random_settings(random_)
    reader = TruncatedBpttLmReader(**settings, max_characters_per_token=None)
    epoch = random_.randint(0, 3)
    whole = batches_of(reader, corpus, epoch, 0, vocab)

    expected = []
    for direction in ("forward", "backward")[: 1 + settings["bidirectional"]]:
        windows = plain_windows(
            lines_in_order(corpus, settings, epoch, direction),
            settings["batch_size"],
            settings["num_steps"],
            direction == "backward",
            settings["drop_last"],
            settings.get("contiguous", False),
        )
        expected.append(
            [[[["<UNK>" if w == "last" else w for w in r] for r in s] for s in x] for x in windows]
        )
    n_batches = (min if settings["drop_last"] else max)(map(len, expected))
    assert len(whole) == n_batches
    nothing = [[[]] * settings["batch_size"]] * 2
    for windows, suffix in zip(expected, ("", "_reverse")):
        windows += [nothing] * (n_batches - len(windows))
        made = words_of_batches(whole, vocab, suffix)
        assert [list(map(list, window)) for window in made] == windows[:n_batches]
    shape = settings["batch_size"], settings["num_steps"]
    for number, batch in enumerate(whole):
        window = batch.pop("window")
        assert window.tolist() == [[number, row, shape[0]] for row in range(shape[0])]
        assert len(batch) == 2 + 2 * settings["bidirectional"]
        assert {(tensor.shape, tensor.dtype) for tensor in batch.values()} == {(shape, torch.long)}
        batch["window"] = window

    monkeypatch.setattr(lexicon, "MAX_WORDS", 10)
    for skip in {0, random_.randint(0, n_batches), n_batches}:
        if n_batches:
            assert equal(list(reader.batches(corpus, epoch, skip, vocab)), whole[skip:])

    reader = TruncatedBpttLmReader(**settings, max_characters_per_token=9)
    of_characters = batches_of(reader, corpus, epoch, 0, vocab)
    for batch, same in zip(of_characters, whole):
        for suffix in ("", "_reverse")[: 1 + settings["bidirectional"]]:
            targets = batch[f"targets{suffix}"]
            assert torch.equal(targets, same[f"targets{suffix}"])
            is_word = targets != -100
            ids = batch[f"tokens{suffix}"]
            assert ids.dtype == torch.long and not ids[~is_word].any()
            (made,) = words_of_batches([same], vocab, suffix)
            known = [word for row in made[0] for word in row]
            is_known = same[f"tokens{suffix}"][is_word] != 2
            expected_ids = torch.from_numpy(words_to_character_ids(known, 9)).long()
            assert torch.equal(ids[is_word][is_known], expected_ids[is_known])
    assert len(of_characters) == n_batches

    n_processes = random_.choice([n for n in (1, 2, 3, 5) if shape[0] % n == 0])
    parts = []
    for rank in range(n_processes):
        settings["batch_size"] = shape[0] // n_processes
        reader = TruncatedBpttLmReader(**settings, max_characters_per_token=None)
        reader._set_distributed_info(DistributedInfo(n_processes, rank))
        parts.append(batches_of(reader, corpus, epoch, 0, vocab))
        assert len(parts[-1]) == n_batches
    for batch, *of_ranks in zip(whole, *parts):
        for name in batch.keys() - {"window"}:
            assert torch.equal(torch.cat([each[name] for each in of_ranks]), batch[name])


def test_passes_are_shuffled_by_seed_direction_and_number(corpus):
    vocab = vocabulary_of(LINES)

    def targets(epoch, **settings):
        reader = TruncatedBpttLmReader(
            1, 5, None, **{"shuffle_sentences": True, "drop_last": False, **settings}
        )
        batches = list(reader.batches(corpus, epoch, 0, vocab))
        words = [words_of_batches(batches, vocab, suffix) for suffix in ("", "_reverse")]
        return [[word for window in each for word in window[1][0]] for each in words]

    first, backward = targets(0)
    assert targets(0) == [first, backward]
    others = [targets(1)[0], targets(0, seed=1)[0], targets(0, shuffle_sentences=False)[0]]
    others.append([{"<S>": "</S>"}.get(word, word) for word in backward])
    assert all(sorted(first) == sorted(each) for each in others)
    assert len({" ".join(each) for each in [first, *others]}) == 5


class TestCountBatches:
    @pytest.mark.parametrize("contiguous", [False, True])
    @pytest.mark.parametrize("drop_last", [True, False])
    @pytest.mark.parametrize("n_processes", [1, 2])
    def test_exact(self, corpus, drop_last, n_processes, contiguous):
        reader = TruncatedBpttLmReader(3, 4, drop_last=drop_last, contiguous=contiguous)
        reader._set_distributed_info(DistributedInfo(n_processes, 0))
        assert reader.count_batches(corpus) == len(list(reader.batches(corpus))) > 0

    def test_estimate(self, tmp_path, monkeypatch):
        for number in range(40):
            (tmp_path / f"{number}").write_text("some words in a line\n" * 500)
        (tmp_path / "empty").touch()
        reader = TruncatedBpttLmReader(3, 4)
        exact = reader.count_batches(tmp_path)
        assert exact == len(list(reader.batches(tmp_path)))
        monkeypatch.setattr(truncated_bptt_reader, "_COUNTED_BYTES", 20_000)
        assert reader.count_batches(tmp_path) == pytest.approx(exact, rel=0.02)
        assert reader.count_batches(tmp_path) != exact

    def test_max_instances(self, corpus):
        reader = TruncatedBpttLmReader(3, 4, max_instances=8)
        batches = list(reader.batches(corpus))
        assert reader.count_batches(corpus) == len(batches) == 2
        assert equal(list(reader.batches(corpus, 0, 1)), batches[1:])


class TestBadInput:
    def test_corpus_smaller_than_one_batch(self, tmp_path):
        path = tmp_path / "small.txt"
        path.write_text("a b c\n\nd\n")
        for contiguous in (False, True):
            reader = TruncatedBpttLmReader(3, 3, contiguous=contiguous)
            with pytest.raises(ConfigurationError, match="small.txt is smaller .*3 rows of 3;"):
                list(reader.batches(path))
        assert len(list(TruncatedBpttLmReader(3, 3, drop_last=False).batches(path))) == 2

    def test_no_text_in_gzip(self, tmp_path):
        (tmp_path / "a.gz").write_bytes(gzip.compress(b""))
        for drop_last in (True, False):
            with pytest.raises(ConfigurationError, match="a.gz"):
                list(TruncatedBpttLmReader(3, drop_last=drop_last).batches(tmp_path / "a.gz"))

    def test_stock_data_loaders_are_refused(self, corpus):
        with pytest.raises(ConfigurationError, match='data loader "truncated_bptt"'):
            list(TruncatedBpttLmReader(4).read(str(corpus)))

    @pytest.mark.parametrize("name", ["batch_size", "num_steps"])
    @pytest.mark.parametrize("value", [0, None])
    def test_settings(self, name, value):
        with pytest.raises(ConfigurationError, match=f"{name} is {value}, but must be at least 1"):
            TruncatedBpttLmReader(**{"batch_size": 4, name: value})
