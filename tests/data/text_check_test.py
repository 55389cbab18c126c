"""What a text that isn't meant for a language model is warned about, and where it is read."""

import pytest

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.data.text_check import check_text
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from tests.support.testing import write_random_elmo

JAPANESE = "東京は日本の首都であり、人口が最も多い都市である。\n" * 30
ENGLISH = "It was late , and nobody came .\n" * 30
LONG = "достопримечательностиидругие"  # 28 letters, 56 bytes
WARNINGS = [
    "a.txt: is this text tokenised? It has 30 words in 30 lines, of 75 bytes on average.",
    "a.txt: 30 of 30 words have more than 48 bytes. Of each of them, the model reads the first 48 "
    "(24 Cyrillic or 16 Japanese letters), such as of '東京は日本の",
]


def warnings_of(caplog):
    return [each.message for each in caplog.records if each.levelname == "WARNING"]


def assert_warned(caplog, expected):
    found = warnings_of(caplog)
    assert len(found) == len(expected)
    for message, start in zip(found, expected):
        assert message[message.index("a.txt") :].startswith(start)


@pytest.mark.parametrize(
    "text, expected",
    [
        (ENGLISH, []),
        ("Yes\nNo\n\n" * 30, []),  # short lines
        ("x" * 20 + "\n", []),
        ("x" * 40 + " y\n", []),
        (", , a\n", []),  # commas by themselves
        ("மலையாளத்தில் எழுதப்பட்ட வாக்கியம் .\n" * 30, []),  # long words
        (JAPANESE, WARNINGS),
        (
            "It was late, and nobody came.\n" * 30,
            ["a.txt: is this text tokenised? 30 of 180 words end with a comma."],
        ),
        ("a, b c\n" * 30, ["a.txt: is this text tokenised? 30 of 90 words end with a comma."]),
        (f"и {LONG} .\n" * 3, ["a.txt: 3 of 9 words have more than 48 bytes."]),
        (f"a {LONG}\n" + "a b\n" * 4999, []),  # one address in a text
        ("", []),
        ("\n\n", []),
    ],
)
def test_texts(text, expected, caplog):
    check_text("a.txt", [text.encode()], 50)
    assert_warned(caplog, expected)


def test_the_limit_is_the_models(caplog):
    text = f"a\x1b{'x' * 60} five5 four\n".encode()
    check_text("a.txt", [text], 6)
    assert "2 of 3 words have more than 4 bytes" in caplog.text
    assert "such as of 'a\\x1b" + "x" * 35 + "'." in caplog.text


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a.txt").write_text(JAPANESE, encoding="utf-8")
    return tmp_path / "a.txt"


def test_vocabularies(path, caplog):
    make_vocabulary(str(path), path.parent / "vocab")
    assert_warned(caplog, WARNINGS)


@pytest.mark.parametrize("shuffle", [False, True])
def test_training(path, caplog, shuffle):
    """Once, at the start, of all epochs and directions."""
    reader = TruncatedBpttLmReader(2, 5, shuffle_sentences=shuffle, drop_last=False)
    for epoch in range(2):
        assert list(reader.batches(str(path), epoch))
    assert list(reader.batches(str(path), 0, 1))
    assert_warned(caplog, WARNINGS)
    caplog.clear()
    words_alone = TruncatedBpttLmReader(2, 5, max_characters_per_token=None)
    assert list(words_alone.batches(str(path)))
    assert not warnings_of(caplog)


def test_embedding(path, tmp_path, caplog):
    embedder = ElmoEmbedder(*write_random_elmo(tmp_path))
    with open(path, "rb") as file:
        embedder.embed_file(file, str(tmp_path / "layers.hdf5"))
    assert_warned(caplog, WARNINGS)
