import gzip
import io
import os
import sys

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.data.sentence_lines import SentenceLines, open_lines

TEXT = "a  b\r\n\n \t\nnaïve\u00a0x\u2028y \u3000\n\ufeffthe\x0bend"
LINES = [
    (0, "a  b", ["a", "b"]),
    (1, "", []),
    (2, "", []),
    (3, "naïve\u00a0x\u2028y \u3000", ["naïve\u00a0x\u2028y", "\u3000"]),
    (4, "the\x0bend", ["the", "end"]),
]


@pytest.mark.parametrize("kind", ["bytes", "text", "gzip"])
def test_lines(kind):
    data = TEXT.encode("utf-8")
    file = {
        "bytes": io.BytesIO(data),
        "text": io.StringIO(TEXT, newline="\n"),
        "gzip": io.BytesIO(gzip.compress(data[:10]) + gzip.compress(data[10:])),
    }[kind]
    lines = SentenceLines(file)
    assert list(map(tuple, lines)) == LINES
    assert lines.number == 5
    plain = SentenceLines(io.BytesIO(data))
    plain.skip(100)
    assert (plain.number, plain.checksum) == (5, lines.checksum)


def test_skip():
    lines = SentenceLines(io.BytesIO(TEXT.encode("utf-8")))
    lines.skip(3)
    lines.skip(2)
    assert list(map(tuple, lines)) == LINES[3:]


@pytest.mark.parametrize("name", ["a.txt", "a.gz"])
def test_progress(name, tmp_path):
    data = TEXT.encode("utf-8") * 1000
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    with open_lines(str(tmp_path / name)) as lines:
        assert lines.size == os.path.getsize(tmp_path / name)
        list(lines)
        assert lines.position == lines.size


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
        with pytest.raises(ConfigurationError, match="x.txt, line 3: byte 3 .*UTF-8"):
            list(SentenceLines(io.BytesIO(data), "x.txt"))
    file = io.TextIOWrapper(io.BytesIO(b"na\xefve\n"), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="y, line 1: .*UTF-8"):
        list(SentenceLines(file, "y"))


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data + b"garbage"])
def test_damaged_gzip(damage):
    data = damage(gzip.compress(TEXT.encode("utf-8") * 1000))
    with pytest.raises(ConfigurationError, match="x.gz, line .* damaged or cut off"):
        list(SentenceLines(io.BytesIO(data), "x.gz"))


def test_no_file(tmp_path):
    with pytest.raises(ConfigurationError, match="no file .*missing"):
        open_lines(str(tmp_path / "missing")).__enter__()
    with pytest.raises(ConfigurationError, match="is a folder"):
        open_lines(str(tmp_path)).__enter__()


def test_long_lines(monkeypatch):
    """A line of ten megabytes is one sentence; one of unknown length is not read to its end."""
    data = b"word " * 2_000_000
    for file in (io.BytesIO(data), io.BytesIO(gzip.compress(data, 1)), io.StringIO(data.decode())):
        (line,) = SentenceLines(file)
        assert len(line.words) == 2_000_000
    monkeypatch.setattr("allennlp_elmo_plugin.data.sentence_lines._MAX_LINE", 10**6)
    for file in (io.BytesIO(data), io.BytesIO(gzip.compress(data)), io.StringIO(data.decode())):
        unit = "characters" if isinstance(file, io.StringIO) else "bytes"
        message = f"text, line 1: is longer than 1,000,000 {unit}; is this a text"
        with pytest.raises(ConfigurationError, match=message):
            list(SentenceLines(file, "text"))


def test_input_that_cannot_be_read(monkeypatch):
    class Folder(io.BytesIO):
        def readline(self, size=-1):
            raise IsADirectoryError(21, "Is a directory")

    with pytest.raises(ConfigurationError, match="cannot read text: Is a directory"):
        list(SentenceLines(Folder(), "text"))
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ConfigurationError, match="the standard input is closed"):
        open_lines("-").__enter__()


def test_control_characters():
    (line,) = SentenceLines(io.BytesIO(b"a\0b \x1b[31m \x7f \xc2\x9b\n"))
    assert line.words == ["a\0b", "\x1b[31m", "\x7f", "\x9b"]
