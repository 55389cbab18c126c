import itertools
import logging
import os
import signal

import pytest

from tests.fuzz.readers import READERS, Fuzzer, main


@pytest.fixture(scope="module")
def fuzzer():
    logging.disable(logging.WARNING)  # of unknown keys
    yield Fuzzer(seed=1)
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("reader", READERS)
def test_mutated_files_are_read_or_refused(reader, fuzzer, monkeypatch):
    """The first of the cases that `python -m tests.fuzz.readers` runs; sound files are read."""
    n_read, failures = fuzzer.run_cases(reader, 40)
    assert failures == {} and 0 < n_read < 40
    monkeypatch.setattr(fuzzer, "case", lambda *_: fuzzer.sound[READERS[reader][1]])
    assert fuzzer.run_case(reader, 0) == (True, None)


@pytest.mark.nightly
def test_many_mutated_files(capsys):
    assert main(["--cases", "8000", "--seed", "2"]) == 0
    assert capsys.readouterr().out.startswith("options: 1,760 cases, ")


def test_failures_are_found(fuzzer, monkeypatch):
    """Errors that are not ours or don't name the file, much memory, crashes and hangs."""
    failing = {
        b"1": lambda: {}["key"],
        b"2": lambda: int("a number"),
        b"3": lambda: bytearray(2**40),
        b"4": lambda: os.kill(os.getpid(), signal.SIGKILL),
        b"5": lambda: sum(itertools.count()),
    }
    monkeypatch.setattr(fuzzer, "read", lambda path: failing.get(path.read_bytes(), str)())
    monkeypatch.setattr(fuzzer, "case", lambda _, number: b"%d" % number)
    monkeypatch.setattr("tests.fuzz.readers.SECONDS", 1)
    n_read, failures = fuzzer.run_cases("text", 7)
    died = f"dies (status {signal.SIGKILL.value})"
    errors = {number: error.split(":")[0] for number, error in failures.items()}
    assert errors == {1: "KeyError", 2: "ValueError", 3: "MemoryError", 4: died, 5: "hangs"}
    assert n_read == 2
