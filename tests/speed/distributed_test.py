import json

import pytest

import speed.distributed as distributed
import speed.scaling as scaling


def test_measurements_and_predictions(tmp_path, capsys):
    """That everything runs."""
    output = tmp_path / "rows.json"
    sizes = ["--size", "tiny", "--vocabularies", "2000", "--processes", "1,2", "--steps", "1"]
    distributed.main([*sizes, "--batch-size", "8", "--samples", "64", "--output", str(output)])
    alone, together = json.loads(output.read_text())["rows"]
    assert alone["words_per_second"] > 0 and together["words_per_second"] > 0
    assert together["bytes_per_step"] > 0
    scaling.compare([alone, together], batch_size=8, n_samples=64)
    assert len(capsys.readouterr().out.splitlines()) == 4 + 3


@pytest.mark.parametrize("n_processes", [2, 8])
def test_bytes_of_a_step(n_processes):
    options = scaling._options("tiny")
    n_bytes = scaling.bytes_of_a_step(options, 2000, n_processes, 8, 64)
    share = 2 * (n_processes - 1) / n_processes
    values = n_bytes / share - 4 * scaling.dense_parameters(options)
    assert 4 * 17 * 64 < values < 4 * 17 * 2000


def test_predictions(capsys):
    scaling.main([])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 + 4 * len(scaling.DEVICES)
