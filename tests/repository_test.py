"""The files of the repository that no other test reads."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml


@pytest.fixture(scope="module")
def workflow(repository_root: Path) -> Any:
    text = (repository_root / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def test_the_workflow_calls_targets_of_the_makefile(repository_root: Path, workflow: Any) -> None:
    makefile = (repository_root / "Makefile").read_text(encoding="utf-8")
    jobs = workflow["jobs"]
    called = [step.get("run", "") for step in jobs["lint-types-and-docs"]["steps"]]
    called += [step.get("run", "").split(" || ")[0] for step in jobs["tests"]["steps"][:-1]]
    called += [f"make {each['target']}" for each in jobs["tests"]["strategy"]["matrix"]["include"]]
    words = [word for line in called if line for word in line.split()[1:]]
    targets = {word for word in words if "=" not in word}
    assert targets == {"lint", "types", "docs", "browser", "test", "test-reference"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    for variable in {word.split("=")[0] for word in words if "=" in word}:
        assert re.search(rf"^{variable} \?=", makefile, re.MULTILINE)


@pytest.mark.parametrize("browser", ["chromium", "google-chrome", None])
def test_a_browser_without_apt_get(
    browser: Optional[str], repository_root: Path, tmp_path: Path
) -> None:
    for name in ("make", "sh", "id"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    if browser is not None:
        (tmp_path / browser).touch(0o755)
    process = subprocess.run(
        ["make", "browser"],
        cwd=repository_root,
        env={"PATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert (process.returncode == 0) == (browser is not None)
    assert ("Install Chromium" in process.stdout) == (browser is None)


def test_the_workflow_has_all_supported_pythons(repository_root: Path, workflow: Any) -> None:
    setup = (repository_root / "setup.py").read_text(encoding="utf-8")
    supported = re.findall(r"Python :: (3\.\d+)", setup)
    jobs = workflow["jobs"]
    assert jobs["wheel"]["strategy"]["matrix"]["python"] == supported
    tested = [each["python"] for each in jobs["tests"]["strategy"]["matrix"]["include"]]
    assert tested == supported


def test_the_citation_is_complete(repository_root: Path) -> None:
    citation = yaml.safe_load((repository_root / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert "version" not in citation  # allennlp_elmo_plugin/version.py has it.
    for work in (citation, *citation["references"]):
        for author in work["authors"]:
            assert author.keys() in ({"name"}, {"family-names", "given-names"})
