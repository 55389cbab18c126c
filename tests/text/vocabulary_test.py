import gzip

import pytest

from allennlp_elmo_plugin.text import vocabulary
from allennlp_elmo_plugin.text.vocabulary import read_vocabulary_file, write_vocabulary_file

SPECIAL = b"<S>\n</S>\n<UNK>\n"


@pytest.mark.parametrize(
    "content, words",
    [
        (b"<S>\r\n</S>\r\n<UNK>\r\n!!!MAXTERMID\r\nthe\r\nof", ["the", "of"]),
        (b"\xef\xbb\xbf" + SPECIAL + b"\xef\xbb\xbfx\n", ["\ufeffx"]),
        # Counts are left out
        (SPECIAL + b"!!!MAXTERMID\nthe\t9\nof 8\n\xc2\xa0a  7\n", ["the", "of", "\xa0a"]),
        # only if all words have one: there are words with white space.
        (SPECIAL + b"the\n10 000\n10 500\n", ["the", "10 000", "10 500"]),
        (SPECIAL + b"the 9\nof -8\n", ["the 9", "of -8"]),
        (SPECIAL + "\x85\n\u2028\nx\x1cy\n東京\n".encode(), ["\x85", "\u2028", "x\x1cy", "東京"]),
    ],
)
def test_files_are_read_and_written(content, words, tmp_path):
    path, words = tmp_path / "vocab.txt", ["<S>", "</S>", "<UNK>", *words]
    for data in (content, gzip.compress(content)):
        path.write_bytes(data)
        assert read_vocabulary_file(path) == words
    write_vocabulary_file(path, words)
    assert path.read_bytes().decode() == "".join(f"{word}\n" for word in words)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"<S>\n</S>\nthe\n", "special words <UNK> are missing"),
        (SPECIAL + b"the\nof\nthe\n", "line 6: 'the' is there twice, first in line 4"),
        (SPECIAL + b" \nthe\n", "line 4: is empty"),
        (SPECIAL + b"\xed\xa0\x80\n", "line 4: byte 0xed is not UTF-8"),
        (SPECIAL + b"\x1b[31m\n\x1b[31m\n", "line 5: .* is there twice"),
        (SPECIAL + b"x" * 9999 + b"\n" + b"x" * 9999, "line 5: .{,60} is there twice"),
        (b"A text .\n\nA text .\n", "missing; .*`allennlp-elmo-plugin elmo-vocab` makes one of a"),
    ],
)
def test_bad_files_are_refused(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read_vocabulary_file(path)
    assert str(path) in str(error.value) and str(error.value).isprintable()


def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "vocab.txt"
    monkeypatch.setattr(vocabulary, "allowance", lambda size: max(10**4, size))
    words = SPECIAL + b"".join(b"%s%d\n" % (b"x" * 99, i) for i in range(300))
    path.write_bytes(gzip.compress(words, 9))
    with pytest.raises(ValueError, match="^v: unpacks to more than 10,000 bytes"):
        read_vocabulary_file(path, "v")
    path.write_bytes(words)
    assert len(read_vocabulary_file(path)) == 303


def test_folders_that_are_not_a_language_models(tmp_path):
    words = ["<S>", "</S>", "<UNK>", "the"]
    for present in (None, "lm_tokens.txt"):
        if present:
            (tmp_path / present).touch()
        with pytest.raises(ValueError, match="^folder: has no lm_tokens.txt with non_padded"):
            vocabulary.read_vocabulary_folder(tmp_path, "folder")
    vocabulary.write_vocabulary_folder(tmp_path, words)
    for namespaces in ("", "\n*tags\n", "*\x00", "tokens"):
        (tmp_path / "non_padded_namespaces.txt").write_text(namespaces)
        with pytest.raises(ValueError, match="^folder: the namespace lm_tokens is padded"):
            vocabulary.read_vocabulary_folder(tmp_path, "folder")
    (tmp_path / "non_padded_namespaces.txt").write_bytes(b"\xff\n*_tokens\r\n")
    assert vocabulary.read_vocabulary_folder(tmp_path, "folder") == words
    (tmp_path / "lm_tokens.txt").write_bytes(b"<S>\n\xff\n")
    with pytest.raises(ValueError, match="^folder/lm_tokens.txt, line 2: byte 0xff is not UTF-8"):
        vocabulary.read_vocabulary_folder(tmp_path, "folder")
