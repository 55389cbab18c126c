"""`allennlp elmo --ray-workers` with a real Ray, whose processes are killed."""

import os
import re
import subprocess
import sys
import time

import pytest
from allennlp.commands import main

from allennlp_elmo_plugin.embedding import corpus_embedder
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.embedding.parts import PartsFolder
from allennlp_elmo_plugin.embedding.ray_workers import embed_parts
from tests.conftest import REPOSITORY_ROOT
from tests.support.layers_files import assert_same_files, make_text
from tests.support.testing import refused, write_random_elmo

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.nightly

MODEL = ["--options-file", "options.json", "--weight-file", "weights.hdf5"]
ACCIDENTS = ["--include-package", "tests.support.ray_accidents"]
N_LINES = 5503
FILES = {"options.json", "text", "weights.hdf5"}


@pytest.fixture(scope="module")
def cluster():
    """Ray, for all tests of this module and the commands that they start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(REPOSITORY_ROOT), prepend=os.pathsep)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Ray's default, 15, starves the workers of a busy machine.
        patch.setenv("RAY_worker_niceness", "0")
        context = ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield context.address_info["gcs_address"]
        ray.shutdown()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a model and a text of many parts."""
    monkeypatch.setattr(corpus_embedder, "PART_WORDS", 500)
    write_random_elmo(tmp_path)
    (tmp_path / "text").write_text(make_text(N_LINES - 3) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*options):
    return ["elmo", "text", "layers", "--top", *MODEL, *options]


def run(*options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["allennlp", *command(*options)])
        main()


def expected(folder, **arguments):
    embedder = ElmoEmbedder("options.json", "weights.hdf5", **arguments)
    with open(folder / "text", "rb") as file:
        embedder.embed_file(file, str(folder / "expected"), "top", batch_size=None)
    return folder / "expected"


def read_log(folder):
    lines = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
    return [line.split() for line in lines]


def ray_is_writing(folder):
    """Return whether a worker of a command that was killed is still there."""
    try:
        for shard in range(2):
            with PartsFolder(folder / "layers").lock(f"shard-{shard}"):
                pass
    except BlockingIOError:
        return True
    return False


def wait_until(condition):
    until = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_killed_worker_costs_the_part_that_it_wrote(cluster, folder, capfd):
    (folder / "kill").write_text("40")
    run("--ray-workers", "2", "--num-shards", "3", "--precision", "bfloat16", *ACCIDENTS)
    printed = capfd.readouterr()
    assert re.fullmatch(
        r"5,503 sentences, [\d,]+ words in .*, [\d.]+ MB. Written to layers\n", printed.out
    )
    assert "raylet" not in printed.err
    assert not (folder / "kill").exists()
    log = read_log(folder)
    numbers = sorted(int(number) for number, _ in log)
    assert numbers == list(range(len(numbers)))
    assert len({process for _, process in log}) in (2, 3)
    assert_same_files("layers", expected(folder, precision="bfloat16"))
    assert {path.name for path in folder.iterdir()} == FILES | {"layers", "log", "expected"}


def test_a_killed_command_is_resumed(cluster, folder, capsys, subprocess_environment):
    options = ["--ray-workers", "1", "--num-shards", "2", *ACCIDENTS]
    (folder / "slow").touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "allennlp_elmo_plugin", *command(*options)],
        # The second one lets it read the token of this user's Ray.
        env={**subprocess_environment, "RAY_ADDRESS": cluster, "RAY_AUTH_MODE": "token"},
        stderr=subprocess.PIPE,
    )
    wait_until(lambda: len(read_log(folder)) > 5 or process.poll() is not None)
    assert process.poll() is None, process.stderr.read()
    process.kill()
    process.communicate()
    (folder / "slow").unlink()
    message = refused(capsys, *command(*options, "--dtype", "float16"))
    assert "dtype was 'float32' and is 'float16'" in message

    wait_until(lambda: not ray_is_writing(folder))
    n_written = len(read_log(folder))
    run(*options)
    numbers = sorted(int(number) for number, _ in read_log(folder))
    assert numbers == list(range(len(numbers))) and n_written < len(numbers)
    assert_same_files("layers", expected(folder))

    # Nothing is left to do.
    run(*options, "--resume")
    assert "5,503 sentences" in capsys.readouterr().out


def test_an_error_in_a_worker_is_one_line(cluster, folder, capsys):
    lines = (folder / "text").read_bytes().split(b"\n")
    lines[4000] = b"a \xff b"
    (folder / "text").write_bytes(b"\n".join(lines))
    with pytest.raises(SystemExit):
        run("--ray-workers", "1", "--num-shards", "2")
    *bar, last = capsys.readouterr().err.splitlines()
    assert last.startswith("error: text, line 4001: byte 0xff is not UTF-8 (invalid start byte); ")
    assert not any("Traceback" in line for line in bar)
    # What other shards have written is kept.
    assert "layers.parts" in os.listdir()


def test_more_than_ray_has(cluster, folder):
    with pytest.raises(ValueError, match="a worker needs 1 GPU, which Ray"):
        embed_parts("text", "layers", model={}, options={}, workers=1, gpus=1)


def test_without_ray(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    message = refused(capsys, *command("--ray-workers", "1"))
    assert "pip install 'allennlp_elmo_plugin[ray]'" in message
