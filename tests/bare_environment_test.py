"""The wheel in an environment that has torch, numpy, h5py and tqdm, and nothing else."""

import subprocess
import sys
import venv
from collections.abc import Callable
from importlib.metadata import distribution
from shutil import copytree

import pytest
from packaging.requirements import Requirement

from allennlp_elmo_plugin.__main__ import INSTALL_ALLENNLP
from tests.support.bilm_tf import REFERENCE

pytestmark = pytest.mark.nightly  # It starts Python ten times.

Run = Callable[..., str]

TRAIN = """
import torch
from allennlp_elmo_plugin import BiLm, BiLmOptions, Elmo, ElmoEmbedder, batch_to_ids

elmo = Elmo("tiny", dropout=0.0, requires_grad=True)
optimizer = torch.optim.Adam(elmo.parameters())
losses = []
for _ in range(2):
    vectors = elmo(batch_to_ids([["A", "sentence", "."]]))["elmo_representations"][0]
    losses.append(vectors.square().mean())
    optimizer.zero_grad()
    losses[-1].backward()
    optimizer.step()
assert losses[1] < losses[0]
for model in ("tiny", "imported/model.tar.gz", "checkpoint"):
    print(ElmoEmbedder(model).embed_sentence(["A", "sentence", "."]).shape)
"""


@pytest.fixture(scope="module")
def run(repository_root, tmp_path_factory):
    """Run Python there, in an empty folder; return what it prints, or the last line of errors."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "environment", symlinks=True)
    (packages,) = folder.glob("environment/lib/python*/site-packages")
    names = ["torch", "numpy", "h5py", "tqdm"]
    for name in names:  # which grows
        found = distribution(name)
        for part in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (packages / part).exists():
                (packages / part).symlink_to(found.locate_file(part))
        for needed in map(Requirement, found.requires or ()):
            if needed.name not in names and (not needed.marker or needed.marker.evaluate()):
                names.append(needed.name)
    source = folder / "source"
    copy = ["git", "checkout-index", "--all", f"--prefix={source}/"]
    subprocess.run(copy, cwd=repository_root, check=True)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, check=True)
    (wheel,) = folder.glob("*.whl")
    install = [sys.executable, *"-m pip install -q --no-deps --no-index --target".split(), packages]
    subprocess.run([*install, wheel], check=True)
    python, work = folder / "environment" / "bin" / "python", folder / "work"
    work.mkdir()

    def run(*given, status=0):
        command = [python, "-I", *given]
        process = subprocess.run(command, cwd=work, capture_output=True, encoding="utf-8")
        assert process.returncode == status, process.stderr
        return process.stderr.splitlines()[-1] if status else process.stdout

    copytree(REFERENCE / "checkpoint", work / "checkpoint")
    copytree(REFERENCE / "data", work / "data")
    return run


def test_programs_and_training(run):
    module = ("-m", "allennlp_elmo_plugin")
    text, vocabulary = "data/train.txt", "data/vocab.txt"
    for line, printed in {
        f"elmo {text} layers.hdf5 --all": "52 sentences, ",
        f"elmo {text} layers.hdf5 --all --resume --batch-tokens 4096": "52 sentences, ",
        f"elmo-vocab {text} --output vocab": "52 sentences, ",
        f"elmo-import checkpoint imported --vocab-file {vocabulary}": "Written to imported: ",
        "elmo-export imported/model.tar.gz exported": "Written to exported: ",
        f"elmo-nearest the {text}": "  query ",
        "elmo-configs configs": "",
    }.items():
        output = run(*module, *line.split())
        assert output.startswith(printed) and "0 files" not in output, line
    assert run("-c", TRAIN).split("\n") == ["(3, 3, 256)", "(3, 3, 16)", "(3, 3, 16)", ""]


def test_what_is_missing_is_named_with_its_installation(run):
    module = ("-m", "allennlp_elmo_plugin")
    for command in ("train", "elmo-benchmark"):
        line = run(*module, command, status=2)
        assert line.startswith(f"error: {command} is a command of AllenNLP")
        assert INSTALL_ALLENNLP in line
    probe = "elmo-probe --elmo tiny --task pos --train data --test data --output probes"
    for command in ("elmo-plot map the data/train.txt -o map.html", probe):
        line = run(*module, *command.split(), status=2)
        assert "pip install 'allennlp_elmo_plugin[plot]'" in line
    line = run("-c", "import allennlp_elmo_plugin.plugin", status=1)
    assert line == "ModuleNotFoundError: No module named 'allennlp'"
