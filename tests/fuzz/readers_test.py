import logging
import os
import signal

import pytest

from tests.fuzz.readers import SHARES, Fuzzer, main


@pytest.fixture(scope="module")
def fuzzer():
    logging.disable(logging.WARNING)  # of unknown keys
    yield Fuzzer(seed=1)
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("reader", SHARES)
def test_mutated_files_are_read_or_refused(reader, fuzzer, monkeypatch):
    """The first of the cases that `python -m tests.fuzz.readers` runs; sound files are read."""
    n_read, failures = fuzzer.run_cases(reader, 40)
    assert failures == {} and 0 < n_read < 40
    monkeypatch.setattr("tests.fuzz.readers.mutate", lambda data, _: data)
    monkeypatch.setattr("tests.fuzz.readers.mutate_json", lambda data, _: data)
    assert fuzzer.run_case(reader, 0) == (True, None)


@pytest.mark.nightly
@pytest.mark.parametrize("reader", SHARES)
def test_many_mutated_files(reader, capsys):
    assert main(["--readers", reader, "--cases", "1000", "--seed", "2"]) == 0
    assert capsys.readouterr().out.startswith(f"{reader}: 1,000 cases, ")


def _hang():
    while True:
        pass


def test_failures_are_found(fuzzer, monkeypatch):
    """Errors that are not ours or don't name the file, much memory, crashes and hangs."""
    failing = {
        1: lambda: {}["key"],
        2: lambda: int("a number"),
        3: lambda: bytearray(2**40),
        4: lambda: os.kill(os.getpid(), signal.SIGKILL),
        5: _hang,
    }

    def read(reader, folder):
        failing.get(int((folder / "number").read_bytes()), lambda: None)()

    monkeypatch.setattr(fuzzer.seeds, "read", read)
    monkeypatch.setattr(fuzzer, "case", lambda _, number: {"number": b"%d" % number})
    monkeypatch.setattr("tests.fuzz.readers.SECONDS", 1)
    n_read, failures = fuzzer.run_cases("text", 7)
    died = f"dies (status {signal.SIGKILL.value})"
    errors = {number: error.split(":")[0] for number, error in failures.items()}
    assert errors == {1: "KeyError", 2: "ValueError", 3: "MemoryError", 4: died, 5: "hangs"}
    assert n_read == 2
