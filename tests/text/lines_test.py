import bz2
import functools
import gzip
import io
import lzma
import os
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allennlp_elmo_plugin.text import lines as text_lines
from allennlp_elmo_plugin.text.lines import TextLines, join_lines, open_lines

TEXT = (
    "a  b\r\n\n \x0b\x0c \t\nnaïve\u00a0x\u2028y \u3000\n\ufeffa \ufeffb\n \ufeffa\n\ufeff\n"
    "\ufeffthe\x0bend\0\x1b\x9b"
)
LINES = [
    (0, "a  b", ["a", "b"]),
    (1, "", []),
    (2, "", []),
    (3, "naïve\u00a0x\u2028y \u3000", ["naïve\u00a0x\u2028y", "\u3000"]),
    (4, "a \ufeffb", ["a", "\ufeffb"]),
    (5, "\ufeffa", ["\ufeffa"]),
    (6, "", []),
    (7, "the\x0bend\0\x1b\x9b", ["the", "end\0\x1b\x9b"]),
]


def stored(data, kind):
    return gzip.compress(data, 1) if kind == "gzip" else data


def test_lines_and_words(tmp_path):
    """Only line feeds and ASCII white space separate; a mark is dropped at the start of a line."""
    data = TEXT.encode("utf-8")
    (tmp_path / "text").write_bytes(data)
    for file in (
        io.BytesIO(data),
        io.StringIO(TEXT, newline="\n"),
        open(tmp_path / "text", encoding="utf-8", newline="\n"),
        io.BytesIO(gzip.compress(data[:10]) + gzip.compress(data[10:])),
    ):
        with file:
            lines = TextLines(file)
            assert list(map(tuple, lines)) == LINES
            assert (lines.number, lines.offset) == (8, len(data))
    words = [word.encode() for *_, words in LINES for word in words]
    assert join_lines([data]).split() == words and join_lines([data]).endswith(b"\n")


@pytest.mark.parametrize("kind", ["plain", "gzip"])
def test_standard_input(kind, monkeypatch):
    data = TEXT.encode("utf-8")
    read_end, write_end = os.pipe()
    os.write(write_end, stored(data, kind))
    os.close(write_end)
    with open(read_end, encoding="utf-8") as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        with open_lines("-") as lines:
            assert list(map(tuple, lines)) == LINES
            assert lines.size is None and lines.position == len(data)


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


@pytest.mark.parametrize("kind", ["plain", "gzip"])
@pytest.mark.parametrize("read", [TextLines.read_line, lambda text: text.read_block(1000)])
def test_files(kind, read, tmp_path, monkeypatch):
    """Gzip is known by the content; no more is read of a line that is too long; damage is named."""
    monkeypatch.setattr(text_lines, "MAX_LINE_BYTES", 2**20)
    path = tmp_path / "text"
    path.write_bytes(stored(TEXT.encode("utf-8") * 1000, kind))
    with open_lines(path) as lines:
        while read(lines):
            pass
        assert lines.position == lines.size == path.stat().st_size
        assert lines.number == TEXT.count("\n") * 1000 + 1
    path.write_bytes(stored(b"a\n" + bytes(2**26), kind))
    tracemalloc.start()
    try:
        with open_lines(path) as lines:
            with pytest.raises(ValueError, match="text, line 2: is longer than 1,048,576 bytes"):
                while read(lines):
                    pass
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    for damaged in (gzip.compress(TEXT.encode())[:-9], gzip.compress(b"a\n") + b"garbage"):
        text = TextLines(io.BytesIO(damaged))
        with pytest.raises(ValueError, match="the input: can't be read after line [0-9]"):
            while read(text):
                pass


@pytest.mark.parametrize("kind", ["plain", "gzip"])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_text_that_changes_while_it_is_read(change, kind, tmp_path):
    path = tmp_path / "text"
    path.write_bytes(stored(b"a b\n" * 10, kind))
    with open_lines(path) as lines:
        next(iterator := iter(lines))
        os.truncate(path, lines.size + change)
        with pytest.raises(ValueError, match="text: changed while it was read, from .* bytes"):
            list(iterator)


def test_a_text_that_is_open_in_another_encoding_is_named(tmp_path, caplog):
    """As `open` does by default on Windows."""
    (tmp_path / "x").write_text("naïve\n", "utf-8")
    for encoding in ("utf-8", "cp1250"):
        assert not caplog.messages
        with open(tmp_path / "x", encoding=encoding) as file:
            list(TextLines(file))
    (message,) = caplog.messages
    assert "x: is read as cp1250, as it was opened; if it is UTF-8, open it by open(...," in message
    with pytest.raises(IsADirectoryError, match="expected a file, found a folder"):
        with open_lines(tmp_path):
            pass


@pytest.mark.parametrize(
    "content, kind",
    [
        (b"PK\x03\x04\x14\0", "a zip archive or, like .docx, a document in one: unzip it"),
        (b"PAR1\x15\x04\x15", "a Parquet file: write its column"),
        (b"%PDF-1.7\n%\xe2\xe3\n", "a PDF: extract its text"),
        (bz2.compress(b"text"), "compressed by bzip2: decompress it with bunzip2"),
        (lzma.compress(b"text"), "compressed by xz: decompress it with unxz"),
        (b"\x28\xb5\x2f\xfd\x04", "compressed by zstd: decompress it with unzstd"),
    ],
)
def test_a_file_of_another_kind_is_named(content, kind, tmp_path):
    (tmp_path / "x").write_bytes(content)
    for file in (open(tmp_path / "x", "rb"), io.BytesIO(content)):
        with file, pytest.raises(ValueError, match=f"x: is no text, but {kind}"):
            TextLines(file, "x")


@pytest.mark.parametrize("text", [b"PK said : PAR1 , %PDF", b"PAR1 .", b"BZ", b""])
def test_texts_are_no_files_of_other_kinds(text):
    assert [line.sentence.encode() for line in TextLines(io.BytesIO(text))] == [text] * bool(text)


def test_what_is_not_utf8_is_named():
    files = [io.BytesIO(b"good\nna\xefve\n"), io.BytesIO(gzip.compress(b"good\nna\xefve\n"))]
    files.append(io.TextIOWrapper(io.BytesIO(b"\xefve\n"), encoding="utf-8"))
    for file, n in zip(files, (2, 2, 1)):
        with pytest.raises(ValueError, match=f"x, line {n}: byte 0xef is not UTF-8.*iconv -f ENC"):
            list(TextLines(file, "x"))
    with pytest.raises(ValueError, match="x, line 1: byte 0xff .* by `iconv -f UTF-16 -t UTF"):
        list(TextLines(io.BytesIO("где\n".encode("utf-16")), "x"))
    with pytest.raises(ValueError, match="the input, line 1: byte 0xed is not UTF-8"):
        list(TextLines(io.StringIO("a \ud800")))
