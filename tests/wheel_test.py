"""The wheel that is built from the sdist alone: what it contains, and that it needs only torch."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from importlib.metadata import distribution
from shutil import copytree

import pytest
from packaging.requirements import Requirement

from allennlp_elmo_plugin import __version__
from allennlp_elmo_plugin.__main__ import ALLENNLP_VERSION, INSTALL_ALLENNLP
from tests.support.bilm_tf import REFERENCE
from tests.support.testing import read_files

pytestmark = pytest.mark.nightly
PACKAGE = "allennlp_elmo_plugin"
NAME = f"{PACKAGE}-{__version__}"
MODULE = ("-m", PACKAGE)


@pytest.fixture(scope="module")
def source(repository_root, tmp_path_factory):
    """A copy of the repository's files."""
    folder = tmp_path_factory.mktemp("source")
    copy = ["git", "checkout-index", "--all", f"--prefix={folder}/"]
    subprocess.run(copy, cwd=repository_root, check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    """Build as pip does, but in this environment and without the network."""
    folder = tmp_path_factory.mktemp("distributions")

    def build(kind, source):
        code = f"from setuptools import build_meta; build_meta.build_{kind}({str(folder)!r})"
        environment = {**os.environ, "REPOSITORY_URL": "https://example.org/elmo"}
        command = [sys.executable, "-c", code]
        subprocess.run(command, cwd=source, env=environment, capture_output=True, check=True)

    build("sdist", source)
    with tarfile.open(folder / f"{NAME}.tar.gz") as archive:
        archive.extractall(folder)
    build("wheel", folder / NAME)
    return folder / f"{NAME}-py3-none-any.whl"


def test_the_wheel_has_all_modules_and_configs(wheel, source):
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        metadata = Parser().parsestr(file.read(f"{NAME}.dist-info/METADATA").decode())
        programs = file.read(f"{NAME}.dist-info/entry_points.txt").decode().splitlines()
    configs = {f"training_config/{name}" for name in read_files(source / "training_config")}
    packed = {f"{PACKAGE}/{name}" for name in configs.union(read_files(source / PACKAGE))}
    packed.add("allennlp_elmo_spacy.py")
    assert {name for name in names if ".dist-info/" not in name} == packed
    assert [name.rpartition("/")[2] for name in names].count("LICENSE") == 1
    assert metadata["Version"] == __version__
    assert metadata["Project-URL"] == "Repository, https://example.org/elmo"
    readme = metadata.get_payload()
    assert "](https://example.org/elmo/raw/HEAD/docs/pictures/two_senses.svg)" in readme
    assert "](https://example.org/elmo/blob/HEAD/docs/results.md)" in readme
    assert not re.findall(r"\]\((?!https:|#)", readme)
    assert "allennlp-elmo-plugin = allennlp_elmo_plugin.__main__:main" in programs


def test_one_version_of_allennlp(source):
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))
    names = {f"{name}=={ALLENNLP_VERSION}" for name in ("allennlp", "allennlp-models")}
    assert set(project["dependency-groups"]["allennlp"]) == names


@pytest.fixture(scope="module")
def run(wheel, tmp_path_factory):
    """
    Run Python with the wheel, torch, numpy, h5py and tqdm, and nothing else, in an empty folder.
    Return what it prints, or the last line of its errors.
    """
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "environment", symlinks=True)
    (packages,) = folder.glob("environment/lib/python*/site-packages")
    names = ["torch", "numpy", "h5py", "tqdm"]
    for name in names:  # which grows
        package = distribution(name)
        for part in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (packages / part).exists():
                (packages / part).symlink_to(package.locate_file(part))
        for needed in map(Requirement, package.requires or ()):
            if needed.name not in names and (not needed.marker or needed.marker.evaluate()):
                names.append(needed.name)
    install = [sys.executable, *"-m pip install -q --no-deps --no-index --target".split(), packages]
    subprocess.run([*install, wheel], check=True)
    for name in ("checkpoint", "data"):
        copytree(REFERENCE / name, folder / "work" / name)

    def run(*arguments, status=0):
        command = [folder / "environment" / "bin" / "python", "-I", *arguments]
        ended = subprocess.run(command, cwd=folder / "work", capture_output=True, encoding="utf-8")
        assert ended.returncode == status, ended.stderr
        return ended.stderr.splitlines()[-1] if status else ended.stdout

    return run


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


def test_programs_and_training(run):
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
        output = run(*MODULE, *line.split())
        assert output.startswith(printed) and "0 files" not in output, line
    assert run("-c", TRAIN).split("\n") == ["(3, 3, 256)", "(3, 3, 16)", "(3, 3, 16)", ""]


def test_what_is_missing_is_named_with_its_installation(run):
    for command in ("train", "elmo-benchmark"):
        line = run(*MODULE, command, status=2)
        assert line.startswith(f"error: {command} is none of elmo, ")
        assert INSTALL_ALLENNLP in line
    for command, packages in {
        "elmo-plot map the data/train.txt -o map.html": "plotly scikit-learn",
        "elmo-plot curves run -o curves.svg": "matplotlib",
        "elmo-export tiny tiny.onnx": "onnx",
        "elmo-probe --elmo tiny --task pos --train a --test a --output b": "scikit-learn",
    }.items():
        line = run(*MODULE, *command.split(), status=2)
        assert line == f"error: this command needs {packages}: pip install {packages}"
    line = run("-c", "import allennlp_elmo_plugin.plugin", status=1)
    assert line == "ModuleNotFoundError: No module named 'allennlp'"
