"""Streams that go on where others were."""

import gzip
import itertools
import os
import random

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.data import text
from allennlp_elmo_plugin.data.text import SentenceStream, check_files, describe_files, find_files
from allennlp_elmo_plugin.data.text_position import TextPosition
from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.data.windows import WindowStream

LINES = [" ".join(f"{i}.{j}" for j in range(i % 7)) for i in range(300)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 300)
    monkeypatch.setattr(text, "UNSHUFFLED_BLOCK_BYTES", 300)


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for shard in range(3):
        content = "".join(f"{line}\n" for line in LINES[100 * shard : 100 * shard + 100]).encode()
        if shard == 1:
            (folder / f"{shard}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / f"{shard}.txt").write_bytes(content)
    (folder / "empty").touch()
    return folder


def sentences(corpus, shuffled):
    shuffle = random.Random(5) if shuffled else None
    return SentenceStream(find_files(corpus), shuffle=shuffle)


@pytest.mark.parametrize("shuffled", [False, True])
class TestStreams:
    def test_sentences_from_everywhere(self, corpus, shuffled):
        whole = list(sentences(corpus, shuffled))
        assert len(whole) == 300
        stream = sentences(corpus, shuffled)
        for n_read in range(301):
            resumed = sentences(corpus, shuffled)
            resumed.load_state_dict(stream.state_dict())
            if n_read % 20 == 0 or n_read > 290:
                assert list(resumed) == whole[n_read:]
            else:
                assert list(itertools.islice(resumed, 2)) == whole[n_read : n_read + 2]
            next(stream, None)

    @pytest.mark.parametrize("drop_last", [False, True])
    def test_windows_from_everywhere(self, corpus, shuffled, drop_last):
        def make():
            return WindowStream(sentences(corpus, shuffled), 4, 9, drop_last=drop_last)

        whole = list(make())
        stream = make()
        for n_read in range(len(whole) + 1):
            resumed = make()
            resumed.load_state_dict(stream.state_dict())
            assert list(itertools.islice(resumed, 3)) == whole[n_read : n_read + 3]
            next(stream, None)

    def test_nothing_before_is_read(self, corpus, shuffled, monkeypatch):
        stream = sentences(corpus, shuffled)
        whole = list(itertools.islice(stream, 290))
        state = stream.state_dict()
        expected = list(stream)

        n_bytes, n_split = [], []
        read_blocks, split_words = text.read_blocks, text.split_words
        monkeypatch.setattr(
            text,
            "read_blocks",
            lambda *args, **kwargs: read_blocks(*args, on_read=n_bytes.append, **kwargs),
        )
        monkeypatch.setattr(
            text, "split_words", lambda *args: n_split.append(1) or split_words(*args)
        )
        resumed = sentences(corpus, shuffled)
        resumed.load_state_dict(state)
        assert list(resumed) == expected
        assert len(n_split) == len(expected) == 300 - len(whole)
        # No more than the block and the buffer of a file; all is 14 times as much.
        last = {file.name: file.stat().st_size for file in find_files(corpus)}
        assert sum(n_bytes) <= max(last.values())

    def test_the_text_before_may_be_gone(self, tmp_path, shuffled):
        # Bytes that can't be decoded, where the text was that has been read.
        file = tmp_path / "a.txt"
        content = "".join(f"{line}\n" for line in LINES).encode()
        file.write_bytes(content)
        stream = sentences(tmp_path, shuffled)
        for _ in range(200):
            next(stream)
        state = stream.state_dict()
        expected = list(stream)
        assert state["offset"] > 2000
        file.write_bytes(b"\xff" * state["offset"] + content[state["offset"] :])
        resumed = sentences(tmp_path, shuffled)
        resumed.load_state_dict(state)
        assert list(resumed) == expected

    @pytest.mark.parametrize("change", ["other words", "cut off"])
    def test_other_text_there(self, tmp_path, shuffled, change):
        file = tmp_path / "a.txt"
        file.write_text("".join(f"{line}\n" for line in LINES))
        stream = sentences(tmp_path, shuffled)
        for _ in range(200):
            next(stream)
        state = stream.state_dict()
        content = file.read_bytes()
        tail = b"" if change == "cut off" else content[state["offset"] :].replace(b".", b":")
        file.write_bytes(content[: state["offset"]] + tail)
        with pytest.raises(ConfigurationError, match=f"a.txt has.*line {state['line']} on"):
            sentences(tmp_path, shuffled).load_state_dict(state)


def test_checked_files(corpus):
    described = describe_files(find_files(corpus))
    check_files(described, find_files(corpus))
    (corpus / "2.txt").write_text("less")
    with pytest.raises(ConfigurationError, match="2.txt had .* bytes and now has 4.*put the files"):
        check_files(described, find_files(corpus))
    (corpus / "2.txt").unlink()
    with pytest.raises(ConfigurationError, match="2.txt is not there any more"):
        check_files(described, find_files(corpus))
    del described[str(corpus / "2.txt")]
    (corpus / "4.txt").touch()
    with pytest.raises(ConfigurationError, match="4.txt is new"):
        check_files(described, find_files(corpus))


def test_files_of_the_same_size(corpus):
    described = describe_files(find_files(corpus))
    file = corpus / "2.txt"
    content, status = file.read_bytes(), file.stat()
    assert check_files(described, find_files(corpus)) == described

    # A copy with other times: the same text.
    os.utime(file, (1, 1))
    again = check_files(described, find_files(corpus))
    assert again != described
    assert [again[str(file)][i] for i in (0, -1)] == [described[str(file)][i] for i in (0, -1)]

    # Other text, even with the time of before.
    file.write_bytes(content[:-3] + b"x" + content[-2:])
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file.stat().st_size == status.st_size
    for before in (described, again):
        with pytest.raises(ConfigurationError, match="2.txt has other text of the same length"):
            check_files(before, find_files(corpus))


def test_unchanged_files_are_not_read_again(corpus, monkeypatch):
    described = describe_files(find_files(corpus))
    monkeypatch.setattr(text, "_checksum", None)
    assert describe_files(find_files(corpus), described) == described
    assert check_files(described, find_files(corpus)) == described


class TestLoader:
    @pytest.fixture
    def make(self, corpus):
        words = ["<S>", "</S>", "<UNK>", *{word for line in LINES for word in line.split()}]

        def make(reader=None, **kwargs):
            settings = {"shuffle_sentences": True, "max_characters_per_token": None}
            reader = TruncatedBpttLmReader(4, 9, **{**settings, **(reader or {})})
            loader = TruncatedBpttDataLoader(reader, str(corpus), **kwargs)
            vocab = Vocabulary(
                non_padded_namespaces=["lm_tokens"], tokens_to_add={"lm_tokens": words}
            )
            loader.index_with(vocab)
            return loader

        return make

    def equal(self, batches, others):
        assert len(batches) == len(others)
        for batch, other in zip(batches, others):
            assert all(torch.equal(batch[key], other[key]) for key in batch)

    @pytest.mark.parametrize(
        "reader", [{}, {"drop_last": False}, {"bidirectional": False}, {"max_instances": 80}]
    )
    def test_from_everywhere(self, make, reader):
        loader = make(reader)
        expected = [list(loader), list(loader)]
        loader = make(reader)
        batches = iter(loader)
        for n_read in range(len(expected[0]) + 1):
            if n_read and (n_read % 5 == 0 or n_read + 2 > len(expected[0])):
                resumed = make(reader)
                resumed.load_state_dict(loader.state_dict())
                self.equal(list(resumed), expected[0][n_read:])
                self.equal(list(resumed), expected[1])
                assert len(resumed) == len(expected[1])
            next(batches, None)
        self.equal(list(loader), expected[1])

    def test_length_is_what_is_left(self, make):
        loader = make()
        n_batches = len(list(loader))
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        resumed = make()
        resumed.load_state_dict(loader.state_dict())
        assert len(resumed) == n_batches - 5
        list(resumed)
        assert abs(len(resumed) - n_batches) <= 1

    def test_a_worker_reads_ahead(self, make):
        expected = list(make())
        loader = make(num_workers=1)
        batches = iter(loader)
        for _ in range(6):
            next(batches)
        state = loader.state_dict()
        batches.close()
        assert state["position"]["n_windows"] == 6
        resumed = make(num_workers=1)
        resumed.load_state_dict(state)
        self.equal(list(resumed), expected[6:])
        resumed = make()
        resumed.load_state_dict(state)
        self.equal(list(resumed), expected[6:])

    def test_epochs_of_some_batches(self, make):
        loader = make(batches_per_epoch=7)
        expected = [list(loader) for _ in range(9)]
        loader = make(batches_per_epoch=7)
        for epoch in range(8):
            for n_read, _ in enumerate(loader, 1):
                if n_read in (3, 7):
                    resumed = make(batches_per_epoch=7)
                    resumed.load_state_dict(loader.state_dict())
                    assert len(resumed) == 7 - n_read
                    self.equal(list(resumed), expected[epoch][n_read:])
                    assert len(resumed) == 7
                    self.equal(list(resumed), expected[epoch + 1])

    def test_an_abandoned_pass(self, make):
        expected = make()
        passes = [list(expected), list(expected)]
        loader = make()
        list(itertools.islice(loader, 3))
        self.equal(list(loader), passes[1])

    @pytest.mark.parametrize("settings", [{}, {"batches_per_epoch": 7}])
    def test_two_loaders_of_a_reader_and_a_text(self, make, settings):
        """As where training and validation have one path: each keeps its own place."""
        alone, other = make(**settings), make()
        expected = [list(alone) for _ in range(4)]
        expected_other = [list(other) for _ in range(4)]

        loader = make(**settings)
        others = TruncatedBpttDataLoader(loader.reader, loader.data_path)
        others.index_with(loader._vocab)
        for epoch in range(3):
            batches = []
            for batch in loader:
                batches.append(batch)
                if len(batches) == 5:
                    states = loader.state_dict(), others.state_dict()
            self.equal(batches, expected[epoch])
            self.equal(list(others), expected_other[epoch])

            loader = make(**settings)
            others = TruncatedBpttDataLoader(loader.reader, loader.data_path)
            others.index_with(loader._vocab)
            loader.load_state_dict(states[0])
            others.load_state_dict(states[1])
            self.equal(list(loader), expected[epoch][5:])
            self.equal(list(others), expected_other[epoch])

    @pytest.mark.parametrize("file", ["0.txt", "2.txt"])
    def test_other_text_of_the_same_length(self, make, corpus, file):
        """A file that has been read to its end, and one that is read later."""
        loader = make({"shuffle_sentences": False})
        for _ in itertools.islice(loader, 12):
            pass
        state = loader.state_dict()
        assert state["position"]["streams"][0]["sentences"]["file"] == 1
        content = (corpus / file).read_bytes()
        (corpus / file).write_bytes(content.replace(b"7", b"8"))
        with pytest.raises(ConfigurationError, match=f"{file} has other text of the same length"):
            make({"shuffle_sentences": False}).load_state_dict(state)

    def test_other_text_before_the_first_pass(self, make, corpus):
        state = make().state_dict()
        (corpus / "0.txt").write_bytes((corpus / "0.txt").read_bytes().replace(b"7", b"8"))
        with pytest.raises(ConfigurationError, match="0.txt has other text"):
            make().load_state_dict(state)

    def test_other_text(self, make, corpus):
        loader = make()
        next(iter(loader))
        state = loader.state_dict()
        (corpus / "3.txt").write_text("more\n")
        with pytest.raises(ConfigurationError, match="3.txt is new"):
            make().load_state_dict(state)


def test_position_as_plain_values(corpus):
    reader = TruncatedBpttLmReader(4, 9)
    field = [instance["window"] for instance in itertools.islice(reader.read(corpus), 8)][-1]
    position = field.position
    assert position.n_windows == 2
    assert TextPosition(**position.to_dict()) == position
