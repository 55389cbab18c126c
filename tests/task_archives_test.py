"""Archives made with AllenNLP's own ELMo, and with ours, each used with the other."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import numpy as np
import pytest
from allennlp.models import load_archive

from allennlp_elmo_plugin import Elmo
from allennlp_elmo_plugin.modules import ElmoTokenEmbedder
from tests.support import task_archives
from tests.support.testing import write_random_elmo


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: Any, subprocess_environment: Dict[str, str]) -> Dict[str, Any]:
    folder = tmp_path_factory.mktemp("archives")
    files = dict(zip(("options_file", "weight_file"), write_random_elmo(folder, seed=3)))
    # What these archives name is gone when they are used.
    copy = str(shutil.copytree(folder, folder / "copy"))
    made = task_archives.make(folder / "ours", dict.fromkeys(files, copy))
    shutil.rmtree(copy)
    arguments = [str(folder / "theirs"), str(folder / "ours"), json.dumps(files)]
    process = subprocess.run(
        [sys.executable, str(Path(task_archives.__file__)), *arguments],
        env=subprocess_environment,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    theirs = json.loads(process.stdout.splitlines()[-1])
    return {
        "ours": made,
        "theirs": theirs["made"],
        "ours, used by theirs": theirs["given"],
        "theirs, used by ours": task_archives.use(folder / "theirs"),
        "folder": folder,
    }


def assert_same(found: Any, expected: Any) -> None:
    assert len(found) == len(expected) == len(task_archives.BATCHES)
    for a, e in zip(found, expected):
        assert np.std(e) > 1e-2
        np.testing.assert_allclose(a, e, atol=1e-5)


@pytest.mark.parametrize("kind", task_archives.models({}))
def test_archives_are_exchanged_with_and_without_the_plugin(outcomes: Any, kind: str) -> None:
    assert_same(outcomes["theirs, used by ours"][kind], outcomes["theirs"][kind])
    assert_same(outcomes["ours, used by theirs"][kind], outcomes["ours"][kind])
    for made_by in ("ours", "theirs"):
        model = load_archive(outcomes["folder"] / made_by / kind / "model.tar.gz").model
        assert sum(isinstance(module, Elmo) for module in model.modules()) == 1
        has_embedder = any(isinstance(module, ElmoTokenEmbedder) for module in model.modules())
        assert has_embedder == (kind != "bcn")
