import gzip
from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.benchmark.word_vectors import check_word_vectors


@pytest.mark.parametrize(
    "text, dim",
    [
        ("a 1 2 3\nb -1.5e-3 0 7\n", 3),
        ("2 3\na 1 2 3\nb 4 5 6\n", 3),  # word2vec's sizes
        ("a 1 2 3 \nb 4 5 6 \n", 3),
        ("a 1 2\n. . . 1 2\nb 1 2\n", 2),  # as in GloVe 840B
    ],
)
@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz", "vectors.vec"])
def test_sizes(text: str, dim: int, name: str, tmp_path: Path) -> None:
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert check_word_vectors(tmp_path / name) == dim


@pytest.mark.parametrize(
    "data, message",
    [
        (b"a 1 2 3\nb 1 2\n", "line 2: 2 numbers after the word, where 3 must be"),
        (b"a\nb\n", "line 1: 0 numbers after the word, where at least 2 must be"),
        (b"a 1 2\nb 1 x\n", "line 2: not a number .*x"),
        (b"a 1 2\nb nan 2\n", "line 2: the vector of 'b' contains NaN or infinity"),
        (b"a 1 2\n\xff 1 2\n", "line 2"),
        (b"", "there are no vectors in it"),
        (b"5 2\n", "there are no vectors in it"),
        pytest.param(
            gzip.compress(b"a 1 2\n"),
            "vectors.txt: the file is compressed by gzip, .* rename it",
            id="gzip",
        ),
    ],
)
def test_bad_files(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=message):
        check_word_vectors(path)


def test_bad_names(tmp_path: Path) -> None:
    for name, message in (
        ("missing.txt", "no such file"),
        ("vectors.gz", "isn't compressed by gzip"),
        ("vectors.hdf5", "give a text file, plain or .gz"),
        (".", "no such file"),
    ):
        if not name.startswith(("missing", ".")):
            (tmp_path / name).write_bytes(b"a 1 2\n")
        with pytest.raises(ConfigurationError, match=message):
            check_word_vectors(tmp_path / name)
