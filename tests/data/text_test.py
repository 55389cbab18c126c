import gzip
import os
import random
from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.data import text
from allennlp_elmo_plugin.data.text import digests, find_files, read_text
from allennlp_elmo_plugin.files.text_lines import split_words


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    for name in ("b.txt", "a.txt", "c.txt.gz", ".hidden", "folder/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n", encoding="utf-8")
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
    assert [file.name for file in find_files(path)] == names


@pytest.mark.parametrize(
    "path, message",
    [
        ("nothing.txt", "nothing.txt does not exist, or has no text files .looked from /"),
        ("*.json", r"\*.json does not exist"),
        ("", "'' does not exist"),
        ("empty", "empty does not exist, or has no text"),
        ("zero", "zero is empty"),
        (os.devnull, f"{os.devnull} does not exist, or has no"),
    ],
)
def test_errors_name_the_path(corpus, path, message):
    with pytest.raises(ConfigurationError, match=message):
        find_files(path)


def words_of(files, *args):
    texts = b"".join(read_text(files, *args)).decode()
    return [split_words(line.encode()) for line in texts.split("\n")[:-1]]


def test_plain_and_gzip(tmp_path):
    content = "\ufeffa 東京\n\nb\u2028c \x85\x1d\r d\n\ufeff\ufeffe \ufefff\nlast".encode()
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "b.gz").write_bytes(gzip.compress(content))
    (tmp_path / "c.gz").write_bytes(b"")
    sentences = [["a", "東京"], [], ["b\u2028c", "\x85\x1d", "d"]]
    sentences += [["\ufeffe", "\ufefff"], ["last"]]
    assert words_of(find_files(tmp_path)) == sentences * 2
    shuffled = words_of(find_files(tmp_path), "strict", random.Random(3))
    assert sorted(shuffled) == sorted(sentences * 2)
    (tmp_path / "b.gz").write_bytes(gzip.compress(content * 99)[:-10])
    with pytest.raises(ConfigurationError, match="b.gz"):
        words_of([tmp_path / "b.gz"])


@pytest.mark.parametrize("shuffle", [None, random.Random(3)])
def test_bytes_that_are_not_utf8(tmp_path, monkeypatch, shuffle):
    """An error names file and line; replaced, they are what they are in each line alone."""
    monkeypatch.setattr(text, "BLOCK_BYTES", 10)
    random_ = random.Random(2)
    parts = [b"a", b" ", b"\xff", b"\xe6\x9d", b"\xf0\x9f\x98", b"\xed\xa0", "東".encode()]
    lines = [b"".join(random_.choices(parts, k=random_.randint(0, 8))) for _ in range(300)]
    file = tmp_path / "a.txt"
    file.write_bytes(b"good\n" * 6 + b"a b\xffc\n" + b"\n".join([*lines, b"last"]))
    with pytest.raises(ConfigurationError, match="a.txt, line 7: byte 0xff.*or read such"):
        words_of([file], "strict", shuffle)
    expected = [["good"]] * 6 + [["a", "b\ufffdc"]]
    expected += [split_words(line.decode("utf-8", "replace").encode()) for line in lines]
    found = words_of([file], "replace", shuffle)
    if shuffle is not None:
        found.sort()
        expected.sort()
    assert [words for words in found if words != ["last"]] == expected


def test_shuffled_within_blocks_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 50)
    monkeypatch.setattr(text, "READ_BYTES", 20)
    lines = [f"{name}{n:02}" for name in "abc" for n in range(40)]
    for name in "abc":
        (tmp_path / name).write_text("".join(f"{x}\n" for x in lines if x[0] == name))
    files = find_files(tmp_path)

    def read(seed):
        return [words[0] for words in words_of(files, "strict", random.Random(seed))]

    orders = [read(seed) for seed in range(10)]
    assert all(sorted(order) == lines for order in orders)
    assert read(0) == orders[0] and len({tuple(order) for order in orders}) == 10
    # Files come whole, each in some place.
    orders_of_files = {"".join(dict.fromkeys(line[0] for line in order)) for order in orders}
    assert len(orders_of_files) > 1
    for order in orders:
        assert len({line[0] for line in order[:40]}) == 1
        # 13 lines of 4 bytes make a block.
        first, second = ([int(line[1:]) for line in order[i : i + 13]] for i in (0, 13))
        assert max(first) == 12 and first != sorted(first)
        # Another block has another order.
        assert first != [number - 13 for number in second]


def test_about_as_many_bytes_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "READ_BYTES", 1000)
    (tmp_path / "a").write_bytes(b"some words\n" * 5000)
    for shuffle in (None, random.Random(0)):
        n_read = []
        texts = read_text([tmp_path / "a"] * 2, "strict", shuffle, n_read.append)
        sizes = [len(each) for each in texts]
        assert sum(sizes) == sum(n_read) == 2 * 55_000
        assert sum(900 < size < 1100 for size in sizes) >= len(sizes) - 2


def test_digests(corpus):
    found = digests(find_files(["a.txt", "b.txt", "zero"]))
    assert list(found) == ["a.txt", "b.txt", "zero"]
    assert found["a.txt"] == found["b.txt"] != found["zero"]
