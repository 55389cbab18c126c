import os
import signal

import pytest

from tests.fuzz.readers import SHARES, Case, Fuzzer, main

N_CASES = {"hdf5": 60, "archive": 40, "zip": 100}


@pytest.fixture(scope="module")
def fuzzer():
    return Fuzzer(seed=1)


@pytest.mark.parametrize("reader", SHARES)
def test_mutated_files_are_read_or_refused(reader, fuzzer):
    """The first of the cases that `python -m tests.fuzz.readers` runs."""
    n_cases = N_CASES.get(reader, 300)
    outcome = fuzzer.run_batch(reader, 0, n_cases)
    assert outcome.failures == [] and 0 < outcome.n_read < n_cases


def test_sound_files_are_read(fuzzer, monkeypatch):
    monkeypatch.setattr("tests.fuzz.readers.mutate", lambda data, _: data)
    monkeypatch.setattr("tests.fuzz.readers.mutate_json", lambda data, _: data)
    for reader in SHARES:
        assert fuzzer.run_case(reader, 0) == (True, None), reader


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
    monkeypatch.setattr(fuzzer, "case", lambda _, number: Case({"number": b"%d" % number}))
    monkeypatch.setattr("tests.fuzz.readers.SECONDS", 1)
    outcome = fuzzer.run_batch("text", 0, 7)
    errors = {failure["case"]: failure["error"].split(":")[0] for failure in outcome.failures}
    died = f"dies (status {signal.SIGKILL.value})"
    assert errors == {1: "KeyError", 2: "ValueError", 3: "MemoryError", 4: died, 5: "hangs"}
    assert outcome.n_read == 2


def _hang():
    while True:
        pass


def test_a_run_goes_on_where_it_stopped(tmp_path, capsys):
    arguments = ["--readers", "vocabulary", "text", "--folder", str(tmp_path)]
    assert main([*arguments, "--cases", "20"]) == 0
    assert main([*arguments, "--cases", "40"]) == 0
    first, _, third, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("vocabulary: 10 cases") and third.startswith("vocabulary: 20 cases")
