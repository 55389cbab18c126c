import functools
import gzip
import io
import os
import random
import sys
import tempfile
import tracemalloc

import pytest

from allennlp_elmo_plugin.files import text_lines
from allennlp_elmo_plugin.files.text_lines import (
    TextLines,
    join_lines,
    not_utf8,
    open_lines,
    split_words,
)

TEXT = "a  b\r\n\n \t\nnaïve\u00a0x\u2028y \u3000\n\ufeffthe\x0bend"
LINES = [
    (0, "a  b", ["a", "b"]),
    (1, "", []),
    (2, "", []),
    (3, "naïve\u00a0x\u2028y \u3000", ["naïve\u00a0x\u2028y", "\u3000"]),
    (4, "the\x0bend", ["the", "end"]),
]


@pytest.mark.parametrize("kind", ["bytes", "text", "text in a wrapper", "gzip"])
def test_lines(kind):
    data = TEXT.encode("utf-8")
    wrapper = tempfile.NamedTemporaryFile("w+", encoding="utf-8", newline="\n")
    wrapper.write(TEXT)
    wrapper.seek(0)
    file = {
        "bytes": io.BytesIO(data),
        "text": io.StringIO(TEXT, newline="\n"),
        "text in a wrapper": wrapper,
        "gzip": io.BytesIO(gzip.compress(data[:10]) + gzip.compress(data[10:])),
    }[kind]
    lines = TextLines(file)
    assert list(map(tuple, lines)) == LINES
    assert lines.number == 5


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
        ("\ufeffa \ufeffb\n".encode(), ["a", "\ufeffb"]),
        (" \ufeffa\n".encode(), ["\ufeffa"]),
        ("\ufeff\n".encode(), []),
    ],
)
def test_words(line, words):
    """Only ASCII white space separates them, and only a mark at the start of a line is none."""
    assert split_words(line) == words
    assert next(iter(TextLines(io.BytesIO(line)))).words == words


def stored(data, kind):
    return gzip.compress(data) if kind == "gzip" else data


@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a"])
@pytest.mark.parametrize("kind", ["plain", "gzip"])
def test_gzip_is_recognised_by_the_content(name, kind, tmp_path):
    data = TEXT.encode("utf-8") * 1000
    (tmp_path / name).write_bytes(stored(data, kind))
    with open_lines(tmp_path / name) as lines:
        assert lines.size == os.path.getsize(tmp_path / name)
        assert len(list(lines)) == data.count(b"\n") + 1
        assert lines.position == lines.size
    with open_lines(tmp_path / name) as lines:
        assert b"".join(b"".join(block) for block in iter(lambda: lines.read_block(99), [])) == data
        assert lines.position == lines.size


@pytest.mark.parametrize("data", [b"", gzip.compress(b"")], ids=["plain", "gzip"])
def test_empty_text(data):
    assert TextLines(io.BytesIO(data)).read_block(10) == list(TextLines(io.BytesIO(data))) == []


@pytest.mark.parametrize("kind", ["plain", "gzip"])
def test_blocks_are_those_of_readlines(kind):
    random_ = random.Random(0)
    lines = [b"x" * random_.choice([0, 1, 7, 30, 200]) + b"\r\x0b\n" for _ in range(200)]
    content = b"".join(lines)[: random_.randrange(5000, 6000)]
    for block_bytes in (1, 2, 3, 10, 33, 100, 10**6):
        file = io.BufferedReader(io.BytesIO(content))
        text = TextLines(io.BytesIO(stored(content, kind)))
        number = 0
        for block in iter(functools.partial(file.readlines, block_bytes), []):
            assert (text.offset, text.number) == (file.tell() - len(b"".join(block)), number)
            assert text.read_block(block_bytes) == block
            number += len(block)
        assert text.read_block(block_bytes) == []


def test_join_lines():
    assert join_lines([b"\xef\xbb\xbfa\n", b"b\xef\xbb\xbf"]) == b"   a\nb\xef\xbb\xbf\n"


def test_pipes(monkeypatch):
    for data in (TEXT.encode("utf-8"), gzip.compress(TEXT.encode("utf-8"))):
        read_end, write_end = os.pipe()
        os.write(write_end, data)
        os.close(write_end)
        with open(read_end, encoding="utf-8") as standard_input:
            monkeypatch.setattr(sys, "stdin", standard_input)
            with open_lines("-") as lines:
                assert lines.size is None
                assert list(map(tuple, lines)) == LINES


def test_undecodable_bytes_are_named():
    for data in (b"good\n\nna\xefve\n", gzip.compress(b"good\n\nna\xefve\n")):
        with pytest.raises(ValueError, match="x.txt, line 3: byte 0xef is not UTF-8"):
            list(TextLines(io.BytesIO(data), "x.txt"))
    file = io.TextIOWrapper(io.BytesIO(b"na\xefve\n"), encoding="utf-8")
    with pytest.raises(ValueError, match="y, line 1: byte 0xef is not UTF-8"):
        list(TextLines(file, "y"))


@pytest.mark.parametrize(
    "data, encoding",
    [
        (b"na\xefve\n", "LATIN1"),
        ("A caf\xe9 .\n".encode("utf-16"), "UTF-16"),
        ("A caf\xe9 .\n".encode("utf-16-be"), "UTF-16"),
    ],
)
def test_the_encoding_that_it_may_be(data, encoding):
    with pytest.raises(ValueError, match=f"convert the file .*iconv -f {encoding} -t UTF-8"):
        list(TextLines(io.BytesIO(data), "x.txt"))


def test_a_document():
    with pytest.raises(ValueError, match="x.docx: is a zip archive or a document .*UTF-8"):
        list(TextLines(io.BytesIO(b"PK\x03\x04\x14\xff\n"), "x.docx"))


@pytest.mark.parametrize("encoding, is_offered", [("latin1", True), ("utf-16", False)])
def test_another_way_to_read_is_for_one_byte_a_letter(encoding, is_offered):
    with pytest.raises(UnicodeDecodeError) as raised:
        "caf\xe9".encode(encoding).decode()
    assert not_utf8("x", 1, raised.value, ", or so").endswith(", or so") == is_offered


def test_the_class_of_the_errors():
    with pytest.raises(KeyError, match="x, line 1"):
        list(TextLines(io.BytesIO(b"\xff"), "x", KeyError))


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data + b"garbage"])
def test_damaged_gzip(damage):
    data = damage(gzip.compress(TEXT.encode("utf-8") * 1000))
    with pytest.raises(ValueError, match="x.gz: .* damaged or cut off after line [0-9]"):
        list(TextLines(io.BytesIO(data), "x.gz"))
    with pytest.raises(ValueError, match="x.gz: .* damaged or cut off after line [0-9]"):
        text = TextLines(io.BytesIO(data), "x.gz")
        while text.read_block(100):
            pass


def test_no_file(tmp_path):
    with pytest.raises(ValueError, match="no file .*missing"):
        open_lines(str(tmp_path / "missing")).__enter__()
    with pytest.raises(ValueError, match="is a folder"):
        open_lines(str(tmp_path)).__enter__()


class TestLongLines:
    """A small compressed file can hold a line that fills the memory."""

    def texts(self, data):
        return io.BytesIO(data), io.BytesIO(gzip.compress(data, 1)), io.StringIO(data.decode())

    def test_of_ten_megabytes_are_read(self):
        for file in self.texts(b"word " * 2_000_000):
            (line,) = TextLines(file)
            assert len(line.words) == 2_000_000

    def test_are_refused(self, monkeypatch):
        monkeypatch.setattr(text_lines, "MAX_LINE_BYTES", 100)
        message = "text, line 3: is longer than 100 bytes; is this a text"
        for end in (b"c " * 60, b"c" * 100 + b"\n", b"c" * 10**6):
            for file in self.texts(b"a b\n\n" + end):
                with pytest.raises(ValueError, match=message):
                    list(TextLines(file, "text"))
            for file in self.texts(b"a b\n\n" + end)[:2]:
                text = TextLines(file, "text")
                with pytest.raises(ValueError, match=message):
                    while text.read_block(40):
                        pass

    @pytest.mark.parametrize("kind", ["plain", "gzip"])
    @pytest.mark.parametrize("read", [TextLines.read_line, lambda text: text.read_block(1000)])
    def test_no_more_is_read(self, kind, read, tmp_path, monkeypatch):
        monkeypatch.setattr(text_lines, "MAX_LINE_BYTES", 2**20)
        (tmp_path / "text").write_bytes(stored(b"a\n" + bytes(2**26), kind))
        tracemalloc.start()
        try:
            with open_lines(tmp_path / "text") as text:
                with pytest.raises(ValueError, match="line 2: is longer than 1,048,576 bytes"):
                    while read(text):
                        pass
            assert tracemalloc.get_traced_memory()[1] < 2**24
        finally:
            tracemalloc.stop()


def test_input_that_cannot_be_read(monkeypatch):
    class Folder(io.BytesIO):
        def readinto(self, buffer):
            raise IsADirectoryError(21, "Is a directory")

    with pytest.raises(OSError, match="Is a directory"):
        list(TextLines(Folder(), "text"))
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ValueError, match="the standard input is closed"):
        open_lines("-").__enter__()


def test_control_characters():
    (line,) = TextLines(io.BytesIO(b"a\0b \x1b[31m \x7f \xc2\x9b\n"))
    assert line.words == ["a\0b", "\x1b[31m", "\x7f", "\x9b"]
