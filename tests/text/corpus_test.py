import gzip
import hashlib
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allennlp_elmo_plugin.text import corpus as text
from allennlp_elmo_plugin.text.corpus import digests, find_files, read_text


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    for name in ("b.txt", "a.txt", "c.txt.gz", ".hidden", "folder/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "zero").touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "path, names",
    [
        (Path("b.txt"), ["b.txt"]),
        (".", ["a.txt", "b.txt", "c.txt.gz", "zero"]),
        ("*.txt", ["a.txt", "b.txt"]),
        ("**/*.txt", ["a.txt", "b.txt", "d.txt"]),
        (["b.txt", "*.txt", "folder"], ["b.txt", "a.txt", "d.txt"]),
    ],
)
def test_files_are_found_and_sorted(corpus, path, names):
    files = find_files(path)
    assert [file.name for file in files] == names
    assert digests(files[:1]) == {str(files[0]): hashlib.sha256(b"x\n").hexdigest()}


@pytest.mark.parametrize(
    "path, message",
    [
        ("nothing.txt", "nothing.txt does not exist, or has no text files .looked from "),
        ("*.json", r"\*.json does not exist"),
        ("", "'' does not exist"),
        ("empty", "empty does not exist, or has no text"),
        ("zero", "zero is empty"),
        (os.devnull, f"{os.devnull} does not exist, or has no"),
    ],
)
def test_errors_name_the_path(corpus, path, message):
    with pytest.raises(ValueError, match=message):
        find_files(path)


def words_of(files, *args):
    return [line.split() for line in b"".join(read_text(files, *args)).split(b"\n")[:-1]]


PARTS = [character.encode() for character in "aab \r東\ufeff\u2028\x85\x1d\xa0"]
PARTS += [b"\xff", b"\xe6\x9d", b"\xf0\x9f\x98", b"\xed\xa0"]  # not UTF-8
LINES = st.lists(st.lists(st.sampled_from(PARTS), max_size=4).map(b"".join), max_size=20)
ENDS = st.sampled_from([b"", b"\n"])


@given(st.lists(LINES, min_size=1, max_size=3), ENDS, st.integers(1, 40), st.none() | st.integers())
def test_words_are_those_of_each_line(tmp_path, files, end, block_bytes, seed):
    """Plain and compressed, in blocks of any size, in order or shuffled."""
    paths, expected, bad = [], [], []
    for number, lines in enumerate(files):
        paths.append(tmp_path / f"{number}")
        content = b"\n".join(lines) + end
        paths[-1].write_bytes(gzip.compress(content) if number % 2 else content)
        decoded = content.decode("utf-8", "replace").split("\n")
        decoded = decoded if decoded[-1] else decoded[:-1]
        expected += [line.removeprefix("\ufeff").encode().split() for line in decoded]
        numbers = [n for n, line in enumerate(decoded, 1) if "\ufffd" in line]
        bad += [f"{paths[-1]}, line {n}: byte 0x" for n in numbers[:1]]

    def read(errors):
        return words_of(paths, errors, None if seed is None else random.Random(seed))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "BLOCK_BYTES", block_bytes)
        patch.setattr(text, "READ_BYTES", block_bytes)
        replaced = read("replace")
        if bad:
            with pytest.raises(ValueError, match="is not UTF-8") as error:
                read("strict")
            assert str(error.value).startswith(tuple(bad) if seed is not None else bad[0])
        else:
            assert read("strict") == replaced
    if seed is not None:
        expected.sort()
        replaced.sort()
    assert replaced == expected


def test_shuffled_within_blocks_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 50)
    monkeypatch.setattr(text, "READ_BYTES", 20)
    lines = [f"{name}{n:02}" for name in "abc" for n in range(40)]
    for name in "abc":
        (tmp_path / name).write_bytes("".join(f"{x}\n" for x in lines if x[0] == name).encode())

    def read(seed):
        shuffled = words_of(find_files(tmp_path), "strict", random.Random(seed))
        return [words[0].decode() for words in shuffled]

    orders = [read(seed) for seed in range(10)]
    assert read(0) == orders[0] and len({tuple(order) for order in orders}) == 10
    assert len({order[0][0] for order in orders}) > 1  # Files come in any order,
    for order in orders:
        assert sorted(order) == lines and len({line[0] for line in order[:40]}) == 1  # each whole.
        # 13 lines of 4 bytes make a block, and each block has its own order.
        first, second = ([int(line[1:]) for line in order[i : i + 13]] for i in (0, 13))
        assert max(first) == 12 and first != sorted(first)
        assert first != [number - 13 for number in second]


def test_about_as_many_bytes_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "READ_BYTES", 1000)
    (tmp_path / "a").write_bytes(b"some words\n" * 5000)
    for shuffle in (None, random.Random(0)):
        n_read = []
        texts = read_text([tmp_path / "a"] * 2, "strict", shuffle, n_read.append)
        sizes = [len(block) for block in texts]
        assert sum(sizes) == sum(n_read) == 2 * 55_000
        assert sum(900 < size < 1100 for size in sizes) >= len(sizes) - 2
