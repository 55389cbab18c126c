import gzip
import itertools
import os
import random
from types import SimpleNamespace

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.data import text
from allennlp_elmo_plugin.data.text import SentenceStream, check_files, describe_files, find_files
from allennlp_elmo_plugin.data.windows import WindowStream
from allennlp_elmo_plugin.files.text_lines import TextLines
from tests.support.corpora import LINES, Sentences, write_corpus


class TestFindFiles:
    @pytest.fixture
    def corpus(self, tmp_path):
        for name in ("b.txt", "a.txt", "c.txt.gz", ".hidden"):
            (tmp_path / name).write_text("x\n", encoding="utf-8")
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "d.txt").write_text("x\n", encoding="utf-8")
        return tmp_path

    @pytest.mark.parametrize(
        "path, names",
        [
            ("b.txt", ["b.txt"]),
            (".", ["a.txt", "b.txt", "c.txt.gz"]),
            ("*.txt", ["a.txt", "b.txt"]),
            ("**/*.txt", ["a.txt", "b.txt", "d.txt"]),
            (["b.txt", "*.txt", "folder"], ["b.txt", "a.txt", "d.txt"]),
        ],
    )
    def test_found_and_sorted(self, corpus, monkeypatch, path, names):
        monkeypatch.chdir(corpus)
        assert [file.name for file in find_files(path)] == names

    def test_path_objects(self, corpus):
        assert find_files(corpus / "a.txt") == [corpus / "a.txt"]

    @pytest.mark.parametrize(
        "path, message",
        [
            ("nothing.txt", "nothing.txt does not exist"),
            ("*.json", r"No file matches .*\*.json"),
            ("empty", "empty has no files"),
            ("zero.txt", "zero.txt is empty"),
            (os.devnull, f"{os.devnull} is a pipe or a device"),
        ],
    )
    def test_errors_name_the_path(self, corpus, path, message):
        (corpus / "empty").mkdir()
        (corpus / "zero.txt").touch()
        with pytest.raises(ConfigurationError, match=message):
            find_files(corpus / path)


class TestSentenceStream:
    def test_plain_and_gzip(self, tmp_path):
        content = "a 東京\n\nb\u2028c \x85\x1d\r d\nlast".encode()
        (tmp_path / "a.txt").write_bytes(content)
        (tmp_path / "b.gz").write_bytes(gzip.compress(content))
        sentences = [["a", "東京"], [], ["b\u2028c", "\x85\x1d", "d"], ["last"]]
        assert list(Sentences(find_files(tmp_path))) == sentences * 2

    @pytest.mark.parametrize("shuffle", [None, random.Random(3)])
    def test_undecodable_bytes_name_file_and_line(self, tmp_path, monkeypatch, shuffle):
        monkeypatch.setattr(text, "BLOCK_BYTES", 10)
        file = tmp_path / "a.txt"
        file.write_bytes(b"good\n" * 6 + b"a b\xffc\n" + b"good\n" * 6)
        with pytest.raises(ConfigurationError, match="a.txt, line 7: byte 0xff") as error:
            list(Sentences([file], shuffle=shuffle))
        assert "replace" in str(error.value)
        sentences = Sentences([file], shuffle=shuffle, encoding_errors="replace")
        assert ["a", "b\ufffdc"] in list(sentences)

    @pytest.mark.parametrize("shuffle", [None, random.Random(3)])
    def test_undecodable_bytes_are_named_after_all_lines_before(self, tmp_path, shuffle):
        lines = [b"%d\n" % i for i in range(40)]
        lines[20] = lines[30] = b"\xff\n"
        (tmp_path / "a.txt").write_bytes(b"".join(lines))
        state = shuffle and shuffle.getstate()
        replaced = list(Sentences([tmp_path / "a.txt"], shuffle=shuffle, encoding_errors="replace"))
        if shuffle:
            shuffle.setstate(state)
        sentences = Sentences([tmp_path / "a.txt"], shuffle=shuffle)
        n_before = replaced.index(["\ufffd"])
        assert n_before
        assert list(itertools.islice(sentences, n_before)) == replaced[:n_before]
        assert sentences.state_dict()["n_read"] == n_before
        with pytest.raises(ConfigurationError, match="line (21|31): byte 0xff"):
            next(sentences)

    def test_replaced_as_in_each_line_alone(self, tmp_path):
        random_ = random.Random(2)
        parts = [b"a", b" ", b"\xff", b"\xe6\x9d", b"\xf0\x9f\x98", b"\xed\xa0", "東".encode()]
        lines = [b"".join(random_.choices(parts, k=random_.randint(0, 8))) for _ in range(500)]
        (tmp_path / "a.txt").write_bytes(b"\n".join(lines))
        sentences = Sentences([tmp_path / "a.txt"], encoding_errors="replace")
        assert list(sentences) == [text.split_words(line, "replace") for line in lines]

    @pytest.mark.parametrize("shuffle", [None, random.Random(3)])
    def test_byte_order_marks(self, tmp_path, shuffle):
        content = "\ufeffa b\n\ufeff\n\ufeff\ufeffc \ufeffd\ne\ufeff"
        (tmp_path / "a.txt").write_text(content, encoding="utf-8")
        stream = SentenceStream([tmp_path / "a.txt"], shuffle=shuffle)
        read = stream.read().decode().split("\n")
        expected = [["a", "b"], [], ["\ufeffc", "\ufeffd"], ["e\ufeff"], []]
        assert sorted(line.split() for line in read) == sorted(expected)

    def test_broken_gzip(self, tmp_path):
        file = tmp_path / "a.gz"
        file.write_bytes(gzip.compress(b"a b\n" * 1000)[:-10])
        with pytest.raises(ConfigurationError, match="a.gz"):
            list(Sentences([file]))

    def test_gzip_is_recognised_by_the_content(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(gzip.compress(b"a b\n"))
        (tmp_path / "a.txt.gz").write_bytes(b"a b\n")
        for name in ("a.txt", "a.txt.gz"):
            assert list(Sentences([tmp_path / name])) == [["a", "b"]]
        (tmp_path / "empty.gz").touch()
        assert list(Sentences([tmp_path / "empty.gz"])) == []

    def test_shuffled_within_blocks_of_a_file(self, tmp_path, monkeypatch):
        monkeypatch.setattr(text, "BLOCK_BYTES", 50)
        lines = [f"{name}{n:02}" for name in "abc" for n in range(40)]
        for name in "abc":
            (tmp_path / name).write_text("".join(f"{x}\n" for x in lines if x[0] == name))
        files = find_files(tmp_path)

        def read(seed):
            return [words[0] for words in Sentences(files, shuffle=random.Random(seed))]

        orders = [read(seed) for seed in range(10)]
        assert all(sorted(order) == lines for order in orders)
        assert read(0) == orders[0]
        assert len({tuple(order) for order in orders}) == 10
        # Files come whole, each in some place.
        orders_of_files = {"".join(dict.fromkeys(line[0] for line in order)) for order in orders}
        assert len(orders_of_files) > 1
        for order in orders:
            assert order[:40] != sorted(order[:40])
            assert len({line[0] for line in order[:40]}) == 1
            # 13 lines of 4 bytes make a block.
            assert max(int(line[1:]) for line in order[:13]) == 12


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 300)
    monkeypatch.setattr(text, "UNSHUFFLED_BLOCK_BYTES", 300)
    monkeypatch.setattr(text, "_READ_BYTES", 100)


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus")


def sentences(corpus, shuffled, make=Sentences):
    shuffle = random.Random(5) if shuffled else None
    return make(find_files(corpus), shuffle=shuffle)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("shuffled", [False, True])
class TestPlaces:
    """Streams continue where others were."""

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
    @pytest.mark.parametrize(
        "directions", [("forward",), ("backward",), ("forward", "backward")], ids=str
    )
    def test_windows_from_everywhere(self, corpus, shuffled, drop_last, directions):
        def make():
            stream = sentences(corpus, shuffled, SentenceStream)
            return WindowStream(stream, 4, 9, directions=directions, drop_last=drop_last)

        def words(windows):
            return [[window.words() for window in each] for each in windows]

        whole = words(make())
        stream = make()
        for n_read in range(len(whole) + 1):
            resumed = make()
            resumed.load_state_dicts(stream.state_dicts())
            assert words(itertools.islice(resumed, 3)) == whole[n_read : n_read + 3]
            next(stream, None)

    def test_nothing_before_is_read(self, corpus, shuffled, monkeypatch):
        stream = sentences(corpus, shuffled)
        whole = list(itertools.islice(stream, 290))
        state = stream.state_dict()
        expected = list(stream)

        n_bytes, joined = [], []
        read_block, join_lines = TextLines.read_block, text.join_lines

        def count(self, size):
            before = self.position
            lines = read_block(self, size)
            n_bytes.append(self.position - before)
            return lines

        monkeypatch.setattr(TextLines, "read_block", count)
        monkeypatch.setattr(text, "join_lines", lambda x: joined.extend(x) or join_lines(x))
        resumed = sentences(corpus, shuffled)
        resumed.load_state_dict(state)
        assert list(resumed) == expected
        assert len(joined) == len(expected) == 300 - len(whole)
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


@pytest.mark.parametrize(
    "age, wait", [(-1, None), (0, 0.02), (5_000_000, 0.015), (20_000_000, None)]
)
def test_a_file_is_read_when_its_next_change_has_another_time(corpus, monkeypatch, age, wait):
    files, waits = find_files(corpus)[:1], []
    clock = SimpleNamespace(time_ns=lambda: files[0].stat().st_ctime_ns + age, sleep=waits.append)
    monkeypatch.setattr(text, "time", clock)
    described = describe_files(files)
    assert waits == ([] if wait is None else [wait])
    assert describe_files(files, described) == described
    assert len(waits) < 2
