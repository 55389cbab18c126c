import gzip
import sys

import pytest
from allennlp.commands import main
from allennlp.common import logging as common_logging
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.data import text
from allennlp_elmo_plugin.data.text import find_files, read_text
from allennlp_elmo_plugin.data.vocabulary import check_vocabulary

SPECIAL = ["<S>", "</S>", "<UNK>"]


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text("the cat\tthe dog\n\nb a <UNK> </S>\n", encoding="utf-8")
    text = "the 東京 \xa0x a\u3000\n\x85 @@NEWLINE@@ !!!MAXTERMID"
    (folder / "b.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def test_command(corpus, tmp_path, monkeypatch, capsys):
    output = tmp_path / "new" / "vocab"
    arguments = [f"{corpus}/*.txt", f"{corpus}/b.gz", "--output", str(output), "--max-size", "6"]
    monkeypatch.setattr(common_logging, "FILE_FRIENDLY_LOGGING", False)
    monkeypatch.setattr(sys, "argv", ["allennlp", "elmo-vocab", *arguments])
    main()
    printed = capsys.readouterr()
    assert "5 sentences, 15 words" in printed.out
    assert "counting words: 100%" in printed.err
    assert read_vocabulary_file(output / "vocab.txt") == [*SPECIAL, "the", "a", "a\u3000"]


def test_files_agree_and_are_sorted_by_frequency(corpus, tmp_path):
    made = make_vocabulary(corpus, tmp_path / "out")
    assert made == [
        ("<S>", 5),
        ("</S>", 6),  # with the literal one
        ("<UNK>", 3),  # with the two words that can't be written
        ("the", 3),
        *(
            (word, 1)
            for word in sorted(["cat", "dog", "b", "a", "東京", "\xa0x", "a\u3000", "\x85"])
        ),
    ]
    words = [word for word, _ in made]
    assert read_vocabulary_file(tmp_path / "out" / "vocab.txt") == words
    vocab = Vocabulary.from_files(tmp_path / "out" / "vocabulary")
    assert check_vocabulary(vocab) == len(words)
    assert [vocab.get_token_from_index(i, "lm_tokens") for i in range(len(words))] == words
    counts = (tmp_path / "out" / "counts.tsv").read_bytes().decode().split("\n")
    assert counts == [f"{word}\t{count}" for word, count in made] + [""]
    assert {file.name for file in tmp_path.iterdir()} == {"corpus", "out"}


def test_counts_are_those_of_the_targets(corpus, tmp_path):
    made = dict(make_vocabulary(corpus, tmp_path / "out", max_size=5))
    text = b"".join(read_text(find_files(corpus)))
    n_targets = len(text.split()) + text.count(b"\n")
    del made["<S>"]
    assert sum(made.values()) == n_targets


@pytest.mark.parametrize(
    "limits, words",
    [
        ({"min_count": 2}, ["the"]),
        ({"max_size": 4}, ["the"]),
        ({"max_size": 5}, ["the", "a"]),
        ({"min_count": 2, "max_size": 10}, ["the"]),
    ],
)
def test_limits(corpus, tmp_path, limits, words):
    made = make_vocabulary(corpus, tmp_path / "out", **limits)
    assert [word for word, _ in made] == SPECIAL + words


def test_a_vocabulary_without_words_is_refused(corpus, tmp_path):
    with pytest.raises(ConfigurationError, match="occurs 4 times: lower --min-count"):
        make_vocabulary(corpus, tmp_path / "out", min_count=4)
    blank = tmp_path / "blank.txt"
    blank.write_text("  \n\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="no word in the 2 lines"):
        make_vocabulary(blank, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_byte_order_mark_is_no_part_of_a_word(tmp_path):
    text = tmp_path / "bom.txt"
    text.write_bytes(b"\xef\xbb\xbfthe cat\n\xef\xbb\xbfthe dog\n")
    made = make_vocabulary(text, tmp_path / "out")
    assert made[len(SPECIAL) :] == [("the", 2), ("cat", 1), ("dog", 1)]


def test_folder_in_use(corpus, tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    make_vocabulary(corpus, output)  # an empty one is as good as none
    (output / "notes").write_text("mine")
    with pytest.raises(ValueError, match="out is not empty.*--force"):
        make_vocabulary(corpus, output, max_size=4)
    assert len(read_vocabulary_file(output / "vocab.txt")) > 4
    make_vocabulary(corpus, output, max_size=4, force=True)
    assert (output / "notes").read_text() == "mine"
    assert len(read_vocabulary_file(output / "vocab.txt")) == 4
    assert Vocabulary.from_files(output / "vocabulary").get_vocab_size("lm_tokens") == 4
    with pytest.raises(ValueError, match="not a folder"):
        make_vocabulary(corpus, output / "notes")


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"min_count": 0}, "--min-count is 0, but must be at least 1"),
        ({"max_size": 3}, "--max-size is 3, but must be at least 4"),
    ],
)
def test_bad_limits(corpus, tmp_path, settings, message):
    with pytest.raises(ConfigurationError, match=message):
        make_vocabulary(corpus, tmp_path / "out", **settings)


def test_bad_corpora_write_nothing(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(text, "READ_BYTES", 10)
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good\n" * 10 + b"a \xff b\n" + b"good\n" * 10)
    worse = tmp_path / "worse.txt"
    worse.write_bytes(b"\xef\xbb\xbfg\n\xff\nlast")
    for paths, message in (
        ([corpus, bad], "bad.txt, line 11: byte 0xff is not UTF-8"),
        (worse, "worse.txt, line 2: byte 0xff is not UTF-8"),
        (tmp_path / "nothing", "nothing does not exist"),
        (tmp_path / "*.json", "json does not exist"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            make_vocabulary(paths, tmp_path / "out")
    assert {file.name for file in tmp_path.iterdir()} == {"corpus", "bad.txt", "worse.txt"}
    made = make_vocabulary(bad, tmp_path / "out", encoding_errors="replace")
    assert ("\ufffd", 1) in made
