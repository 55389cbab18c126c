"""What a text that isn't meant for a language model is warned about, and where it is read."""

from pathlib import Path
from typing import Any, List

import pytest

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.data.text_check import TextCheck
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.files.text_lines import join_lines
from tests.support.testing import write_random_elmo

JAPANESE = "東京は日本の首都であり、人口が最も多い都市である。\n" * 30
ENGLISH = "It was late , and nobody came .\n" * 30
LONG = "достопримечательностиидругие"  # 28 letters, 56 bytes


def warnings_of(caplog: Any) -> List[str]:
    return [each.message for each in caplog.records if each.levelname == "WARNING"]


def check(text: str, **settings: Any) -> None:
    checked = TextCheck("a.txt", **settings)
    checked.add(join_lines([text.encode()]))
    checked.finish()


@pytest.mark.parametrize(
    "text, expected",
    [
        (ENGLISH, []),
        ("Yes\nNo\n\n" * 30, []),  # short lines
        ("x" * 20 + "\n", []),
        ("x" * 40 + " y\n", []),
        (", , a\n", []),  # commas by themselves
        ("மலையாளத்தில் எழுதப்பட்ட வாக்கியம் .\n" * 30, []),  # long words
        (
            JAPANESE,
            [
                "a.txt: is this text tokenised? It has 30 words in 30 lines, of 75 bytes",
                "a.txt: 30 of 30 words have more than 48 bytes. Of each of them, the model reads "
                "the first 48 (24 Cyrillic or 16 Japanese letters), such as of '東京は日本の",
            ],
        ),
        (
            "It was late, and nobody came.\n" * 30,
            ["a.txt: is this text tokenised? 30 of 180 words end with a comma."],
        ),
        (f"и {LONG} .\n" * 3, ["a.txt: 3 of 9 words have more than 48 bytes."]),
        (ENGLISH.replace("\n", "\r\n"), []),
        ("", []),
        ("\n\n", []),
    ],
)
def test_texts(text: str, expected: List[str], caplog: Any) -> None:
    check(text)
    found = warnings_of(caplog)
    assert len(found) == len(expected)
    for message, start in zip(found, expected):
        assert message.startswith(start)


def test_the_limit_is_the_models(caplog: Any) -> None:
    check("four five5 sixsix\n", max_characters=6)
    assert "2 of 3 words have more than 4 bytes" in caplog.text and "'five5'" in caplog.text


def test_long_words_are_shown_by_their_start(caplog: Any) -> None:
    check(f"a\x1b{'x' * 38} b\n" * 2, max_characters=6)
    assert "such as of 'a\\x1b" in caplog.text and "x...'" in caplog.text
    caplog.set_level("INFO")
    check(ENGLISH * 300 + f"{'x' * 49}\n")  # one of many: a message, no warning
    assert caplog.records[-1].levelname == "INFO"
    assert "1 of 72,001 words have more than 48 bytes" in caplog.records[-1].message


def test_once_and_soon(caplog: Any) -> None:
    checked = TextCheck("a.txt")
    for _ in range(5):
        checked.add(f"{LONG} a a a\n".encode() * 15_000)
    checked.finish()
    (message,) = warnings_of(caplog)
    assert "30,000 of the first 120,000 words" in message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text(JAPANESE, encoding="utf-8")
    return tmp_path / "a.txt"


def test_vocabularies(path: Path, caplog: Any) -> None:
    make_vocabulary(str(path), path.parent / "vocab")
    tokenised, cut = warnings_of(caplog)
    assert f"{path}: is this text tokenised? It has 30 words in 30 lines, of 75 bytes" in tokenised
    assert "30 of 30 words have more than 48 bytes" in cut


@pytest.mark.parametrize("shuffle", [False, True])
def test_training(path: Path, caplog: Any, shuffle: bool) -> None:
    reader = TruncatedBpttLmReader(2, 5, shuffle_sentences=shuffle, drop_last=False)
    for epoch in range(2):  # of two directions each
        assert list(reader.batches(str(path), epoch))
    assert len(warnings_of(caplog)) == 2 and "30 of 30 words" in caplog.text
    caplog.clear()
    words_alone = TruncatedBpttLmReader(2, 5, max_characters_per_token=None)
    assert list(words_alone.batches(str(path)))
    assert not warnings_of(caplog)


def test_embedding(path: Path, tmp_path: Path, caplog: Any) -> None:
    embedder = ElmoEmbedder(*write_random_elmo(tmp_path))
    with open(path, "rb") as file:
        embedder.embed_file(file, str(tmp_path / "layers.hdf5"))
    assert len(warnings_of(caplog)) == 2 and f"{path}: 30 of 30 words" in caplog.text
