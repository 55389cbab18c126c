import functools
import gzip
import io
import os
import sys
import tempfile
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allennlp_elmo_plugin.files import text_lines
from allennlp_elmo_plugin.files.text_lines import (
    TextLines,
    join_lines,
    not_utf8,
    open_lines,
    split_words,
)

TEXT = "a  b\r\n\n \t\nnaïve\u00a0x\u2028y \u3000\n\ufeffthe\x0bend\0\x1b\x9b"
LINES = [
    (0, "a  b", ["a", "b"]),
    (1, "", []),
    (2, "", []),
    (3, "naïve\u00a0x\u2028y \u3000", ["naïve\u00a0x\u2028y", "\u3000"]),
    (4, "the\x0bend\0\x1b\x9b", ["the", "end\0\x1b\x9b"]),
]


def stored(data, kind):
    return gzip.compress(data, 1) if kind == "gzip" else data


@pytest.mark.parametrize("kind", ["bytes", "text", "wrapper", "gzip", "pipe", "gzip pipe"])
def test_lines_and_words(kind, monkeypatch):
    """Only line feeds and ASCII white space separate; a mark is dropped at the start of a line."""
    data = TEXT.encode("utf-8")
    wrapper = tempfile.NamedTemporaryFile("w+", encoding="utf-8", newline="\n")
    wrapper.write(TEXT)
    wrapper.seek(0)
    if "pipe" in kind:
        read_end, write_end = os.pipe()
        os.write(write_end, stored(data, kind.partition(" ")[0]))
        os.close(write_end)
        with open(read_end, encoding="utf-8") as standard_input:
            monkeypatch.setattr(sys, "stdin", standard_input)
            with open_lines("-") as lines:
                assert lines.size is None
                assert list(map(tuple, lines)) == LINES
        return
    file = {
        "bytes": io.BytesIO(data),
        "text": io.StringIO(TEXT, newline="\n"),
        "wrapper": wrapper,
        "gzip": io.BytesIO(gzip.compress(data[:10]) + gzip.compress(data[10:])),
    }[kind]
    lines = TextLines(file)
    assert list(map(tuple, lines)) == LINES
    assert (lines.number, lines.offset) == (5, len(data))


@pytest.mark.parametrize(
    "line, words",
    [
        (b" \x0b\x0c a\n", ["a"]),
        ("\ufeffa \ufeffb\n".encode(), ["a", "\ufeffb"]),
        (" \ufeffa\n".encode(), ["\ufeffa"]),
        ("\ufeff\n".encode(), []),
        ("e\u2028f g\x1ch \x85\n".encode(), ["e\u2028f", "g\x1ch", "\x85"]),
    ],
)
def test_words(line, words):
    assert split_words(line) == words
    assert next(iter(TextLines(io.BytesIO(line)))).words == words


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


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from([b"", b"x", b"\r\x0b", b"x" * 30, b"y" * 200])).map(b"\n".join),
    st.sampled_from([1, 2, 3, 10, 33, 100, 10**6]),
    st.sampled_from(["plain", "gzip"]),
)
def test_blocks_are_those_of_readlines(content, block_bytes, kind):
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
    assert join_lines([b"a\n"]) == b"a\n"


@pytest.mark.parametrize(
    "file, message",
    [
        (io.BytesIO(b"good\n\nna\xefve\n"), "x, line 3: byte 0xef is not UTF-8.*iconv -f LATIN1"),
        (
            io.BytesIO(gzip.compress(b"good\n\nna\xefve\n")),
            "x, line 3: byte 0xef is not UTF-8.*iconv -f LATIN1",
        ),
        (io.TextIOWrapper(io.BytesIO(b"\xefve\n"), encoding="utf-8"), "x, line 1: byte 0xef is"),
        (io.BytesIO("A caf\xe9 .\n".encode("utf-16")), "iconv -f UTF-16"),
        (io.BytesIO("A caf\xe9 .\n".encode("utf-16-be")), "iconv -f UTF-16"),
    ],
)
def test_what_is_not_utf8_is_named_with_the_fix(file, message):
    for error in (ValueError, KeyError):
        with pytest.raises(error, match=message):
            file.seek(0)
            list(TextLines(file, "x", error))


@pytest.mark.parametrize("encoding, is_offered", [("latin1", True), ("utf-16", False)])
def test_another_way_to_read_is_for_one_byte_a_letter(encoding, is_offered):
    with pytest.raises(UnicodeDecodeError) as raised:
        "caf\xe9".encode(encoding).decode()
    assert not_utf8("x", 1, raised.value, ", or so").endswith(", or so") == is_offered


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data + b"garbage"])
@pytest.mark.parametrize("read", [TextLines.read_line, lambda text: text.read_block(100)])
def test_damaged_gzip(damage, read):
    data = damage(gzip.compress(TEXT.encode("utf-8") * 1000))
    text = TextLines(io.BytesIO(data), "x.gz")
    with pytest.raises(ValueError, match="x.gz: .* damaged or cut off after line [0-9]"):
        while read(text):
            pass


def test_input_that_cannot_be_read(monkeypatch, tmp_path):
    for name, message in (
        (str(tmp_path / "missing"), "no file .*missing"),
        (str(tmp_path), "is a folder"),
    ):
        with pytest.raises(ValueError, match=message):
            open_lines(name).__enter__()

    def fail(size):
        raise OSError(5, "Input/output error")

    text = TextLines(io.BytesIO(b"a"), "x")
    monkeypatch.setattr(text, "_file", io.BytesIO())
    monkeypatch.setattr(text, "_read", functools.partial(text._read, fail, 1))
    with pytest.raises(ValueError, match="cannot read x: Input/output error"):
        text._read()


class TestLongLines:
    """A small compressed file can hold a line that fills the memory."""

    def test_of_ten_megabytes_are_read(self):
        (line,) = TextLines(io.BytesIO(gzip.compress(b"word " * 2_000_000, 1)))
        assert len(line.words) == 2_000_000

    def test_are_refused(self, monkeypatch):
        monkeypatch.setattr(text_lines, "MAX_LINE_BYTES", 100)
        for end in (b"c " * 60, b"c" * 100 + b"\n", b"c" * 10**6):
            data = b"a b\n\n" + end
            for file in (io.BytesIO(data), io.BytesIO(gzip.compress(data)), io.StringIO("é" * 60)):
                with pytest.raises(ValueError, match="text, line [13]: is longer than 100 bytes"):
                    list(TextLines(file, "text"))
        assert len(list(TextLines(io.BytesIO(b"c" * 99 + b"\n")))) == 1

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
