"""`allennlp elmo --ray-workers` with a real Ray, whose processes are killed."""

import os
import sys

import pytest
from allennlp.commands import main

from allennlp_elmo_plugin.embedding import corpus_embedder
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.embedding.ray_workers import embed_parts
from tests.conftest import REPOSITORY_ROOT
from tests.support.layers_files import assert_same_files, make_text
from tests.support.testing import refused, write_random_elmo

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.nightly

COMMAND = ["elmo", "text", "layers", "--top", "--options-file", "options.json", "--num-shards", "3"]
COMMAND += ["--include-package", "tests.support.ray_accidents", "--ray-workers", "2"]


@pytest.fixture(scope="module")
def cluster():
    """Ray, for all tests of this module and the commands that they start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(REPOSITORY_ROOT), prepend=os.pathsep)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Ray's default, 15, starves the workers of a busy machine.
        patch.setenv("RAY_worker_niceness", "0")
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a model, a text of many parts and the layers to expect."""
    monkeypatch.setattr(corpus_embedder, "PART_WORDS", 500)
    monkeypatch.setattr(sys, "argv", ["allennlp", *COMMAND])
    monkeypatch.chdir(tmp_path)
    write_random_elmo(tmp_path)
    (tmp_path / "text").write_text(make_text(5500) + "\n", encoding="utf-8")
    with open("text", "rb") as file:
        ElmoEmbedder("options.json").embed_file(file, "expected", "top", batch_size=None)
    return tmp_path


def test_a_killed_worker_costs_the_part_that_it_wrote(cluster, folder, capfd):
    (folder / "kill").touch()
    main()
    printed = capfd.readouterr()
    assert printed.out.startswith("5,503 sentences, ") and "raylet" not in printed.err
    assert not (folder / "kill").exists()
    numbers, processes = zip(*map(str.split, (folder / "log").read_text("utf-8").splitlines()))
    assert sorted(map(int, numbers)) == list(range(len(numbers))) and len({*processes}) in (2, 3)
    assert_same_files("layers", "expected")
    assert not os.path.exists("layers.parts")


def test_an_error_in_a_worker_is_one_line(cluster, folder, capsys):
    lines = (folder / "text").read_bytes().split(b"\n")
    lines[4000] = b"a \xff b"
    (folder / "text").write_bytes(b"\n".join(lines))
    with pytest.raises(SystemExit):
        main()
    *bar, last = capsys.readouterr().err.splitlines()
    assert last.startswith("error: text, line 4001: byte 0xff is not UTF-8 (invalid start byte); ")
    assert not any("Traceback" in line for line in bar)
    with pytest.raises(ValueError, match="a worker needs 1 GPU, which Ray"):
        embed_parts("text", "layers", model={}, options={"num_shards": 1}, workers=1, gpus=1)


def test_without_ray(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install ray " in refused(capsys, *COMMAND)
