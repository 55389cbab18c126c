"""The wheel that is built from the sdist alone, and what it contains."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser

import pytest

from allennlp_elmo_plugin import __version__
from allennlp_elmo_plugin.__main__ import ALLENNLP_VERSION
from tests.support.testing import read_files

pytestmark = pytest.mark.nightly
PACKAGE = "allennlp_elmo_plugin"
NAME = f"{PACKAGE}-{__version__}"


@pytest.fixture(scope="module")
def built(repository_root, tmp_path_factory):
    """The wheel, and the names of all files in the repository."""
    folder = tmp_path_factory.mktemp("distributions")
    copy = ["git", "checkout-index", "--all", f"--prefix={folder}/source/"]
    subprocess.run(copy, cwd=repository_root, check=True)
    tracked = set(read_files(folder / "source"))
    _build(folder / "source", "sdist", folder)
    with tarfile.open(folder / f"{NAME}.tar.gz") as archive:
        archive.extractall(folder)
    _build(folder / NAME, "wheel", folder)
    with zipfile.ZipFile(folder / f"{NAME}-py3-none-any.whl") as wheel:
        yield wheel, tracked


def _build(source, kind, output):
    """Build as pip does, but in this environment and without the network."""
    call = f"from setuptools import build_meta; build_meta.build_{kind}({str(output)!r})"
    subprocess.run(
        [sys.executable, "-c", call],
        cwd=source,
        env={**os.environ, "REPOSITORY_URL": "https://example.org/elmo"},
        capture_output=True,
        check=True,
    )


def test_the_wheel_has_all_modules_and_configs(built):
    wheel, tracked = built
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    metadata = Parser().parsestr(wheel.read(f"{NAME}.dist-info/METADATA").decode())
    programs = wheel.read(f"{NAME}.dist-info/entry_points.txt").decode().splitlines()
    licences = [name for name in wheel.namelist() if name.endswith("/LICENSE")]
    configs = {f"{PACKAGE}/{name}" for name in tracked if name.startswith("training_config/")}
    modules = {name for name in tracked if name.startswith(f"{PACKAGE}/")}
    assert packed == configs | modules
    assert metadata["Version"] == __version__
    assert metadata["Project-URL"] == "Repository, https://example.org/elmo"
    readme = metadata.get_payload()
    assert "](https://example.org/elmo/raw/HEAD/docs/pictures/two_senses.svg)" in readme
    assert "](https://example.org/elmo/blob/HEAD/docs/results.md)" in readme
    assert not re.findall(r"\]\((?!https:|#)", readme)
    assert "allennlp-elmo-plugin = allennlp_elmo_plugin.__main__:main" in programs
    assert len(licences) == 1


def test_one_version_of_allennlp(repository_root):
    project = tomllib.loads((repository_root / "pyproject.toml").read_text(encoding="utf-8"))
    names = {f"{name}=={ALLENNLP_VERSION}" for name in ("allennlp", "allennlp-models")}
    assert set(project["dependency-groups"]["allennlp"]) == names
