import functools
import gzip
import random
import tracemalloc

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.data import text
from allennlp_elmo_plugin.data.text import find_files, read_blocks, read_sentences, split_words


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
        ],
    )
    def test_errors_name_the_path(self, corpus, path, message):
        (corpus / "empty").mkdir()
        (corpus / "zero.txt").touch()
        with pytest.raises(ConfigurationError, match=message):
            find_files(corpus / path)


@pytest.mark.parametrize(
    "line, words",
    [
        (b"a  b\tc \r\n", ["a", "b", "c"]),
        (b" \x0b\x0c a\n", ["a"]),
        (b"\n", []),
        (
            "a\xa0b c\u3000d \x85 e\u2028f g\x1ch\n".encode(),
            ["a\xa0b", "c\u3000d", "\x85"] + ["e\u2028f", "g\x1ch"],
        ),
    ],
)
def test_only_ascii_white_space_separates_words(line, words):
    assert split_words(line) == words


class TestReadSentences:
    def test_plain_and_gzip(self, tmp_path):
        content = "a 東京\n\nb\u2028c \x85\x1d\r d\nlast".encode()
        (tmp_path / "a.txt").write_bytes(content)
        (tmp_path / "b.gz").write_bytes(gzip.compress(content))
        sentences = [["a", "東京"], [], ["b\u2028c", "\x85\x1d", "d"], ["last"]]
        assert list(read_sentences(find_files(tmp_path))) == sentences * 2

    @pytest.mark.parametrize("shuffle", [None, random.Random(3)])
    def test_undecodable_bytes_name_file_and_line(self, tmp_path, monkeypatch, shuffle):
        monkeypatch.setattr(text, "BLOCK_BYTES", 10)
        file = tmp_path / "a.txt"
        file.write_bytes(b"good\n" * 6 + b"a b\xffc\n" + b"good\n" * 6)
        with pytest.raises(ConfigurationError, match="a.txt, line 7: byte 0xff") as error:
            list(read_sentences([file], shuffle=shuffle))
        assert "replace" in str(error.value)
        sentences = read_sentences([file], shuffle=shuffle, encoding_errors="replace")
        assert ["a", "b\ufffdc"] in list(sentences)

    @pytest.mark.parametrize(
        "content", [b"no gzip", gzip.compress(b"a b\n" * 1000)[:-10]], ids=["other", "truncated"]
    )
    def test_broken_gzip(self, tmp_path, content):
        file = tmp_path / "a.gz"
        file.write_bytes(content)
        with pytest.raises(ConfigurationError, match="a.gz"):
            list(read_sentences([file]))

    def test_names_that_hide_gzip(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(gzip.compress(b"a b\n"))
        with pytest.raises(ConfigurationError, match="a.txt: it is compressed .* to a.txt.gz$"):
            list(read_sentences([tmp_path / "a.txt"]))
        (tmp_path / "a.txt.gz").write_bytes(b"a b\n")
        with pytest.raises(ConfigurationError, match="a.txt.gz: .* not compressed .* to a.txt$"):
            list(read_sentences([tmp_path / "a.txt.gz"]))
        (tmp_path / "empty.gz").touch()
        assert list(read_sentences([tmp_path / "empty.gz"])) == []

    def test_shuffled_within_blocks_of_a_shard(self, tmp_path, monkeypatch):
        monkeypatch.setattr(text, "BLOCK_BYTES", 50)
        lines = [f"{shard}{n:02}" for shard in "abc" for n in range(40)]
        for shard in "abc":
            (tmp_path / shard).write_text("".join(f"{x}\n" for x in lines if x[0] == shard))
        files = find_files(tmp_path)

        def read(seed):
            return [words[0] for words in read_sentences(files, shuffle=random.Random(seed))]

        orders = [read(seed) for seed in range(10)]
        assert all(sorted(order) == lines for order in orders)
        assert read(0) == orders[0]
        assert len({tuple(order) for order in orders}) == 10
        # Shards come whole, each in some place.
        shards = {"".join(dict.fromkeys(line[0] for line in order)) for order in orders}
        assert len(shards) > 1
        for order in orders:
            assert order[:40] != sorted(order[:40])
            assert len({line[0] for line in order[:40]}) == 1
            # 13 lines of 4 bytes make a block.
            assert max(int(line[1:]) for line in order[:13]) == 12


def test_progress_counts_stored_bytes(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a b c\n" * 1000)
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"a b c\n" * 1000))
    for file in find_files(tmp_path):
        steps = []
        blocks = list(read_blocks(file, 1000, steps.append))
        assert sum(map(len, blocks)) == 1000
        assert sum(steps) == file.stat().st_size


class TestLongLines:
    """A small compressed file can hold a line that fills the memory."""

    def test_are_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(text, "MAX_LINE_BYTES", 100)
        monkeypatch.setattr(text, "UNSHUFFLED_BLOCK_BYTES", 40)
        for content in (
            b"a b\n\n" + b"c " * 60,
            b"a b\n\n" + b"c" * 100 + b"\n",
            b"a\n\n" + b"c" * 10**6,
        ):
            for name, stored in (("text", content), ("text.gz", gzip.compress(content))):
                (tmp_path / name).write_bytes(stored)
                with pytest.raises(
                    ConfigurationError, match=f"{name}, line 3: is longer than 100 "
                ):
                    list(read_sentences([tmp_path / name]))

    @pytest.mark.parametrize("name", ["text", "text.gz"])
    def test_no_more_is_read(self, tmp_path, name, monkeypatch):
        monkeypatch.setattr(text, "MAX_LINE_BYTES", 2**20)
        content = b"a\n" + bytes(2**26)
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        tracemalloc.start()
        try:
            with pytest.raises(ConfigurationError, match="line 2: is longer than 1,048,576 bytes"):
                list(read_sentences([tmp_path / name]))
            assert tracemalloc.get_traced_memory()[1] < 2**24
        finally:
            tracemalloc.stop()

    def test_of_ten_megabytes_are_read(self, tmp_path):
        words = [f"w{i}" for i in range(1_400_000)]
        (tmp_path / "text").write_text("a\n" + " ".join(words) + "\nb", encoding="utf-8")
        assert list(read_sentences([tmp_path / "text"])) == [["a"], words, ["b"]]


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_blocks_are_those_of_readlines(tmp_path, name):
    """Checkpoints have the places of blocks."""
    random_ = random.Random(0)
    lines = [b"x" * random_.choice([0, 1, 7, 30, 200]) + b"\r\x0b\n" for _ in range(200)]
    content = b"".join(lines)[: random_.randrange(5000, 6000)]
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    for block_bytes in (1, 2, 3, 10, 33, 100, 10**6):
        with (gzip.open if name.endswith("gz") else open)(tmp_path / name, "rb") as file:
            expected = list(iter(functools.partial(file.readlines, block_bytes), []))
        assert list(read_blocks(tmp_path / name, block_bytes)) == expected
