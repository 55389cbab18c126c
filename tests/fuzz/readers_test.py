import pytest

from tests.fuzz.readers import SHARES, Fuzzer, main

N_CASES = {"hdf5": 60, "archive": 40}


@pytest.fixture(scope="module")
def fuzzer():
    return Fuzzer(seed=1)


@pytest.mark.parametrize("reader", SHARES)
def test_mutated_files_are_read_or_refused(reader, fuzzer):
    """A few of the cases that `python -m tests.fuzz.readers` runs, here in one process."""
    n_read = 0
    for number in range(N_CASES.get(reader, 300)):
        was_read, error = fuzzer.run_case(reader, number)
        assert error is None, f"case {number}: {error}"
        n_read += was_read
    assert 0 < n_read < N_CASES.get(reader, 300)


def test_sound_files_are_read(fuzzer, monkeypatch):
    monkeypatch.setattr("tests.fuzz.readers.mutate", lambda data, _: data)
    monkeypatch.setattr("tests.fuzz.readers.mutate_json", lambda data, _: data)
    for reader in SHARES:
        assert fuzzer.run_case(reader, 0) == (True, None), reader


def test_failures_are_found(fuzzer, monkeypatch):
    """An error that is not ours, one that does not name the file, and a process that dies."""
    failing = {
        1: lambda: {}["key"],
        2: lambda: int("a number"),
        3: lambda: bytearray(2**40),
        5: lambda: __import__("os").abort(),
    }
    numbers = iter(range(100))

    def read(reader, folder):
        failing.get(next(numbers), lambda: None)()

    monkeypatch.setattr(fuzzer.seeds, "read", read)
    outcome = fuzzer.run_batch("text", 0, 5)
    assert [failure["case"] for failure in outcome.failures] == [1, 2, 3]
    assert [failure["error"].split(":")[0] for failure in outcome.failures] == [
        "KeyError",
        "ValueError",
        "MemoryError",
    ]
    assert outcome.n_read == 2
    failing[0] = failing[5]
    monkeypatch.setattr("tests.fuzz.readers.SECONDS", 1)
    numbers = iter(range(100))
    died = fuzzer.run_batch("text", 0, 1)
    assert died.failures[0]["error"].startswith("dies") and died.n_read == 0


def test_a_run_goes_on_where_it_stopped(tmp_path, capsys):
    arguments = ["--readers", "vocabulary", "text", "--folder", str(tmp_path)]
    assert main([*arguments, "--cases", "20"]) == 0
    assert main([*arguments, "--cases", "40"]) == 0
    first, _, third, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("vocabulary: 10 cases") and third.startswith("vocabulary: 20 cases")
