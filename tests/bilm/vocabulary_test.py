import gzip

import pytest

from allennlp_elmo_plugin.bilm import vocabulary
from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file, write_vocabulary_file


def test_round_trip_of_awkward_words(tmp_path):
    words = ["<S>", "</S>", "<UNK>", "a", "\xa0a", "b\u3000", "\x85", "\u2028", "x\x1cy", "東京"]
    write_vocabulary_file(tmp_path / "vocab.txt", words)
    assert read_vocabulary_file(tmp_path / "vocab.txt") == words
    assert [file.name for file in tmp_path.iterdir()] == ["vocab.txt"]


def test_windows_line_ends_and_the_line_that_bilm_tf_skips(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"<S>\r\n</S>\r\n<UNK>\r\n!!!MAXTERMID\r\nthe\r\nof")
    assert read_vocabulary_file(path) == ["<S>", "</S>", "<UNK>", "the", "of"]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"<S>\n</S>\nthe\n", "special words <UNK> are missing"),
        (b"", "special words <S>, </S>, <UNK> are missing"),
        (b"<S>\n</S>\n<UNK>\nthe\nof\nthe\n", "line 6: 'the' is there twice, first in line 4"),
        (b"<S>\n</S>\n<UNK>\n \nthe\n", "line 4: is empty"),
        (b"<S>\n</S>\n<UNK>\n\xff\n", "line 4: byte 0xff is not UTF-8"),
        (b"<S>\n</S>\n<UNK>\n\xed\xa0\x80\n", "line 4: byte 0xed is not UTF-8"),
        (bytes(10**7), "special words <S>, </S>, <UNK> are missing"),
        (b"<S>\n\x1b[31m\n\x1b[31m\n", "line 3: .* is there twice"),
        (b"<S>\n" + b"x" * 9999 + b"\n" + b"x" * 9999, "line 3: .{,60} is there twice"),
    ],
)
def test_bad_files_are_refused(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read_vocabulary_file(path)
    assert str(path) in str(error.value) and str(error.value).isprintable()


SPECIAL = "<S>\n</S>\n<UNK>\n"


@pytest.mark.parametrize(
    "lines, words",
    [
        ("the\t9\nof 8\n\xa0a  7\n", ["the", "of", "\xa0a"]),
        ("!!!MAXTERMID\nthe 9\n", ["the"]),
        # Words with white space in them
        ("the\n10 000\n10 500\n", ["the", "10 000", "10 500"]),
        ("the 9\nNew York 8\n", ["the 9", "New York 8"]),
        ("the 9\nof -8\n", ["the 9", "of -8"]),
    ],
)
def test_counts_are_skipped_only_if_all_words_have_one(tmp_path, lines, words):
    path = tmp_path / "vocab.txt"
    path.write_text(SPECIAL + lines, encoding="utf-8")
    assert read_vocabulary_file(path) == ["<S>", "</S>", "<UNK>", *words]


def test_byte_order_mark(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"\xef\xbb\xbf<S>\n</S>\n<UNK>\n\xef\xbb\xbfx\n")
    assert read_vocabulary_file(path) == ["<S>", "</S>", "<UNK>", "\ufeffx"]


def test_gzip(tmp_path, monkeypatch):
    path = tmp_path / "vocab.txt"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf<S>\n</S>\n<UNK>\nx\n"))
    assert read_vocabulary_file(path) == ["<S>", "</S>", "<UNK>", "x"]
    monkeypatch.setattr(vocabulary, "allowance", lambda size: max(2**20, size))
    words = b"<S>\n</S>\n<UNK>\n"
    words += b"".join(b"%s%d\n" % (b"x" * 9999, i) for i in range(300))
    path.write_bytes(gzip.compress(words, 9))
    with pytest.raises(ValueError, match="vocab.txt: unpacks to more than 1,048,576 bytes"):
        read_vocabulary_file(path)
    path.write_bytes(words)
    assert len(read_vocabulary_file(path)) == 303
