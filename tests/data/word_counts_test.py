import gzip
import os
import random
import signal
import sys
import time
from collections import Counter

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.data import word_counts
from allennlp_elmo_plugin.data.word_counts import count_in_files
from allennlp_elmo_plugin.files import text_lines
from tests.support.testing import fork

needs_fork = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(word_counts, "_BLOCK_BYTES", 7)
    monkeypatch.setattr(word_counts, "_RANGE_BYTES", 20)


def count(files, n_processes, encoding_errors="strict"):
    words = Counter()
    n_lines = n_bytes = 0
    for part in count_in_files(files, encoding_errors, n_processes):
        words.update(part.words)
        n_lines += part.n_lines
        n_bytes += part.n_bytes
    return words, n_lines, n_bytes


def expected(texts):
    words = Counter()
    n_lines = 0
    for text in texts:
        lines = text.split(b"\n")
        n_lines += len(lines) - (not lines[-1])
        for line in lines:
            words.update(line.removeprefix(b"\xef\xbb\xbf").split())
    return words, n_lines


def make_texts(seed):
    rng = random.Random(seed)
    words = ["a", "of", "\ufeff", "東京", "x" * 50, "\u00a0b", "\r", "\t"]
    for _ in range(6):
        lines = [" ".join(rng.choices(words, k=rng.randrange(4))) for _ in range(rng.randrange(30))]
        yield ("\n".join(lines) + rng.choice(["", "\n"])).encode("utf-8")


@needs_fork
@pytest.mark.parametrize("seed", range(10))
def test_processes_count_what_one_counts(tmp_path, seed):
    texts = list(make_texts(seed))
    files = []
    for i, text in enumerate(texts):
        files.append(tmp_path / str(i))
        files[-1].write_bytes(gzip.compress(text) if i % 3 == 2 else text)
    n_bytes = sum(file.stat().st_size for file in files)
    for n_processes in (1, 3):
        assert count(files, n_processes) == (*expected(texts), n_bytes)


@needs_fork
def test_line_ends_at_the_ends_of_ranges(tmp_path):
    for length in (1, 2, 5, 6, 7, 10, 19, 20, 21, 40, 41):
        file = tmp_path / "text"
        file.write_bytes(b"\n".join([b"b" * (length - 1)] * 9 + [b"last"]))
        words, n_lines, n_bytes = count([file], 2)
        assert (n_lines, n_bytes) == (10, file.stat().st_size)
        assert words == expected([file.read_bytes()])[0]


@needs_fork
def test_the_first_error_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(text_lines, "MAX_LINE_BYTES", 60)
    lines = [b"good"] * 60
    for places, message in (
        ({59: b"\xff"}, "text, line 60: byte 0xff is not UTF-8"),
        ({10: b"a \xfe b", 30: b"\xff", 58: b"\xff"}, "text, line 11: byte 0xfe"),
        ({30: b"x" * 61, 50: b"\xff"}, "text, line 31: is longer than 60 bytes"),
        ({30: b"x" * 200}, "text, line 31: is longer than 60 bytes"),
    ):
        text = [places.get(i, line) for i, line in enumerate(lines)]
        (tmp_path / "text").write_bytes(b"\n".join(text))
        for n_processes in (1, 2, 3):
            with pytest.raises(ConfigurationError, match=message):
                count([tmp_path / "text", tmp_path / "missing"], n_processes)
    with pytest.raises(ConfigurationError, match="there is no file .*missing"):
        count([tmp_path / "missing", tmp_path / "text"], 2)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"a\n" * 1000)[:-9])
    with pytest.raises(ConfigurationError, match="cut.gz: the compressed file is damaged"):
        count([tmp_path / "cut.gz", tmp_path / "text"], 2)


@needs_fork
def test_a_killed_process_is_an_error(tmp_path, monkeypatch):
    file = tmp_path / "text"
    file.write_bytes(b"the cat\n" * 1000)
    parent = os.getpid()
    n_blocks = iter(range(100))
    count_range = word_counts._count

    def killed(*arguments):
        for part in count_range(*arguments):
            if os.getpid() != parent and next(n_blocks) == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            yield part

    monkeypatch.setattr(word_counts, "_count", killed)
    with pytest.raises(ChildProcessError, match="was killed"):
        count([file], 2)


@needs_fork
def test_processes_end_with_their_parent(tmp_path, monkeypatch):
    file = tmp_path / "text"
    file.write_bytes(b"the cat\n" * 1000)
    pids = tmp_path / "pids"
    start = word_counts._start

    def note():
        with open(pids, "a") as file:
            file.write(f"{os.getpid()}\n")
        start()

    def killed():
        for _ in count_in_files([file], n_processes=3):
            while len(pids.read_text().split()) < 3:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(word_counts, "_start", note)
    assert fork(killed) == signal.SIGKILL
    until = time.monotonic() + 60
    for pid in map(int, pids.read_text().split()):
        while is_running(pid):
            assert time.monotonic() < until
            time.sleep(0.01)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_little_text_needs_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(word_counts, "ProcessPoolExecutor", None)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    (tmp_path / "text").write_bytes(b"a b\n" * 9)
    assert count([tmp_path / "text"], None) == ({b"a": 9, b"b": 9}, 9, 36)
