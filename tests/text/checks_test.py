"""What a text that isn't meant for a language model is warned about, and where it is read."""

import pytest

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.text.checks import check_held_out, check_text
from allennlp_elmo_plugin.text.lines import join_lines
from tests.support.testing import write_random_elmo

JAPANESE = "東京は日本の首都であり、人口が最も多い都市である。\n" * 30
LONG = "достопримечательностиидругие"  # 28 letters, 56 bytes
WARNINGS = [
    "a.txt: is this text tokenised? It has 30 words in 30 lines, of 75 bytes on average.",
    "a.txt: 30 of 30 words have more than 48 bytes. The model reads only the first 48 "
    "(24 Cyrillic or 16 Japanese letters) of each of them, such as '東京は日本の",
]


def assert_warned(caplog, expected):
    messages = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(messages) == len(expected)
    for message, start in zip(messages, expected):
        assert message[message.index("a.txt") :].startswith(start)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("It was late , and nobody came .\n" * 30, []),
        ("Yes\nNo\n\n" * 30, []),  # short lines
        ("x" * 20 + "\n", []),
        ("x" * 40 + " y\n", []),
        (", , a\n", []),  # commas by themselves
        ("மலையாளத்தில் எழுதப்பட்ட வாக்கியம் .\n" * 30, []),  # long words
        (JAPANESE, WARNINGS),
        (
            "a, b c\n" * 30,
            ["a.txt: is this text tokenised? 30 of 90 words end with punctuation, such"],
        ),
        ("They play on the beach.\n", ["a.txt: is this text tokenised? 1 of 5 words end with pun"]),
        ("Who is он?\nОн пришёл домой!\n", ["a.txt: is this text tokenised? 2 of 6 words end"]),
        ("He works at Acme Corp.\nThe U.S. , etc. , Mr. X .\n", []),
        ("Prices rose sharp. .\n" * 3, []),
        (
            "<S> It rained . </S>\n" * 3,
            ["a.txt: has 6 marks of sentences, such as <S>. Leave them"],
        ),
        ("<s> It rained . </s>\n" * 3, ["a.txt: has 6 marks of sentences"]),
        ("The mark <S>\n" + "a b\n" * 200, []),
        ('{"text": "It rained."}\n' * 3, ["a.txt: are these lines of JSON? Give the words"]),
        ('{"text":"It","label":1}\n' * 3, ["a.txt: are these lines of JSON? Give the words"]),
        (f"и {LONG} .\n" * 3, ["a.txt: 3 of 9 words have more than 48 bytes."]),
        (f"a {LONG}\n" + "a b\n" * 4999, []),  # one address in a text
        ("\n\n", []),
        ("1\tIt\tit\tPRON\t_\t_\t2\tnsubj\t_\t_\n" * 9, ["a.txt: is this a table, such as CoNLL"]),
        ("It &apos;s late .\n" * 9, ["a.txt: is this text escaped? 9 of 36 words are like &apos;"]),
        ("a b " * 1000, ["a.txt: it has 2,000 words in 1 line. Give one sentence a line."]),
    ],
)
def test_texts(text, expected, caplog):
    check_text("a.txt", [join_lines([text.encode()])], 50)
    assert_warned(caplog, expected)


def test_the_limit_is_the_models(caplog):
    check_text("a.txt", [f"a\x1b{'x' * 60} five5 four\n".encode()], 6)
    assert "2 of 3 words have more than 4 bytes" in caplog.text
    assert "such as 'a\\x1b" + "x" * 35 + "'." in caplog.text


@pytest.mark.parametrize("n_known", [7, 8])
def test_another_vocabulary(n_known, caplog):
    """Words that the text has once are in no vocabulary of `--min-count 2`."""
    ids = {word: number for number, word in enumerate(["<S>", "</S>", "<UNK>", *"абвгде"])}
    texts = "а б б\n".encode() * n_known, b"x y z\n" * 2, b"x y z\n" * 99
    check_text("a.txt", texts, None, ids)  # It reads the first two.
    message = "a.txt: 22% of its words count as <UNK>, as they are not in the vocabulary of 9 "
    message += "words, which begins with а, б, в, г, д. Is it that of another text?"
    assert_warned(caplog, [message] if n_known == 7 else [])
    caplog.clear()
    check_text("a.txt", [b"Each word occurs once .\n"], None, ids)
    assert_warned(caplog, [])


def test_held_out_sentences_that_are_trained_on(caplog):
    """Except short lines, such as headings, and a few others."""
    lines = [f"This is the sentence number {number} .\n".encode() for number in range(100)]
    heading = [b"= Early life =\n"] * 50
    for n_common, expected in ((10, []), (11, ["a.txt: 11% of its sentences are in the trai"])):
        training = b"".join([*lines[:n_common], *heading]), b"Another one .\n"
        check_held_out("a.txt", [b"".join(lines + heading)], training)
        assert_warned(caplog, expected)


@pytest.mark.parametrize("shuffle", [False, True])
def test_training_and_embedding_warn_once(tmp_path, caplog, shuffle):
    """At the start of all epochs and directions."""
    pytest.importorskip("allennlp")
    from allennlp_elmo_plugin.plugin.components.truncated_bptt_reader import TruncatedBpttLmReader

    path = tmp_path / "a.txt"
    path.write_text(JAPANESE, encoding="utf-8")
    for characters, expected in ((50, WARNINGS), (None, WARNINGS[:1])):
        reader = TruncatedBpttLmReader(2, 5, characters, shuffle_sentences=shuffle)
        for epoch, skip in ((0, 0), (1, 0), (0, 1)):
            assert list(reader.text_batches(path).batches(epoch, skip))
        assert_warned(caplog, expected)
        caplog.clear()
    embedder = ElmoEmbedder(*write_random_elmo(tmp_path))
    with open(path, "rb") as file:
        embedder.embed_file(file, str(tmp_path / "layers.hdf5"))
    assert_warned(caplog, WARNINGS)
