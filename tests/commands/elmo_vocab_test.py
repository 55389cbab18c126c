"""`allennlp elmo-vocab`: which words, in which order, in which files."""

import gzip
from pathlib import Path

import pytest

from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.text.vocabulary import read_vocabulary_file
from tests.support.testing import refused

SPECIAL = ["<S>", "</S>", "<UNK>"]


@pytest.fixture
def corpus(run):
    folder = Path("corpus")
    folder.mkdir()
    (folder / "a.txt").write_text("the cat\tthe dog\n\nb a <UNK> </S>\n", encoding="utf-8")
    text = "the 東京 \xa0x a\u3000\n\ufeffa \x85 !!!MAXTERMID"
    (folder / "b.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def test_command(corpus, run, capsys):
    line = f"elmo-vocab {corpus}/*.txt {corpus}/b.gz --output new/vocab --max-size 6 --min-count 1"
    assert run(line) == (
        "5 sentences, 15 words, 12 different ones. The vocabulary has 6, with <S>, </S>, <UNK>, "
        "and leaves 53.33% of the text unknown. Written to new/vocab\n"
    )
    assert read_vocabulary_file("new/vocab/vocab.txt") == [*SPECIAL, "the", "a", "a\u3000"]
    run(f"elmo-vocab {corpus} --output new/default")
    assert read_vocabulary_file("new/default/vocab.txt") == [*SPECIAL, "the", "a"]
    Path("bad").write_bytes(b"good\na \xff b\ngood\n")
    line = "elmo-vocab bad --output new/vocab --encoding-errors replace"
    assert "new/vocab is not empty" in refused(capsys, *line.split())
    few = "elmo-vocab corpus --output new/few --max-size 2 -q"
    message = "no word is left by a count of at least 2 and a size of 2 at most: give more text"
    assert message in refused(capsys, *few.split())
    run(f"{line} --force -q")
    assert read_vocabulary_file("new/vocab/vocab.txt") == [*SPECIAL, "good"]


def test_the_files_agree(corpus):
    vocabulary = make_vocabulary(corpus, "out")
    rare = ["\x85", "\xa0x", "a\u3000", "b", "cat", "dog", "東京"]
    assert vocabulary == [
        ("<S>", 5),
        ("</S>", 6),  # with the literal one
        ("<UNK>", 2),  # with the word that bilm-tf skips
        *[("the", 3), ("a", 2)],
        *((word, 1) for word in sorted(rare)),
    ]
    words = [word for word, _ in vocabulary]
    assert read_vocabulary_file("out/vocab.txt") == words
    vocab = pytest.importorskip("allennlp.data").Vocabulary.from_files("out/vocabulary")
    assert vocab.get_index_to_token_vocabulary("lm_tokens") == dict(enumerate(words))
    counts = Path("out/counts.tsv").read_bytes().decode().split("\n")
    assert counts == [f"{word}\t{count}" for word, count in vocabulary] + [""]


@pytest.mark.parametrize(
    "options, n_unknown, kept",
    [({"max_size": 5}, 8, {"b,": 12, "a": 4}), ({"min_count": 5}, 12, {"b,": 12})],
)
def test_words_are_chosen_by_their_counts(options, n_unknown, kept, tmp_path, caplog):
    files = [tmp_path / name for name in "abcd"]
    for file in files:
        file.write_text("b, b, a <S>\nb, c </S> !!!MAXTERMID\n", encoding="utf-8")
    vocabulary = make_vocabulary(files, tmp_path / "out", **options)
    assert dict(vocabulary) == {"<S>": 12, "</S>": 12, "<UNK>": n_unknown, **kept}
    assert f"{files[2]}, ...: has 8 marks of sentences, such as <S>." in caplog.text
