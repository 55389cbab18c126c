"""The notebooks run, and their stored outputs are those of a run from top to bottom."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.module_files import load_module

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
runner = load_module(ROOT / "scripts" / "run_notebooks.py")
NAMES = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def code_cells(notebook: Any) -> Any:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(cell: Any) -> str:
    """Return the text that a cell has printed, and its value."""
    parts = [
        each.get("text") or each.get("data", {}).get("text/plain", "") for each in cell.outputs
    ]
    return "".join(parts)


@pytest.mark.parametrize("name", NAMES)
def test_stored_outputs(name: str) -> None:
    notebook = nbformat.read(FOLDER / name, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        for output in cell.outputs:
            assert output.output_type != "error" and output.get("name") != "stderr"
        for unwanted in ("Warning", "Traceback", "error", "site-packages", "/home", "/tmp", "\r"):
            assert unwanted not in texts(cell), cell.source
    assert os.path.getsize(FOLDER / name) < 200_000


@pytest.mark.parametrize("name", NAMES)
def test_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a training of five batches, its cells print as many lines as in the stored notebook."""
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    shutil.copytree(ROOT / "training_config", tmp_path / "training_config")
    with open(tmp_path / "training_config" / "pretrain" / "demo.jsonnet", "a") as config:
        config.write("+ { data_loader+: { batches_per_epoch: 5 } }\n")
    (tmp_path / "notebooks").mkdir()
    path = Path(shutil.copy(FOLDER / name, tmp_path / "notebooks"))
    monkeypatch.setenv("NOTEBOOK_EPOCHS", "1")
    for variable in ("PATH", "PYTHONWARNINGS"):  # `run_notebook` sets them
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    found, stored = (
        code_cells(each) for each in (runner.run_notebook(path), nbformat.read(path, 4))
    )
    for cell, expected in zip(found, stored):
        assert texts(cell).count("\n") == texts(expected).count("\n"), texts(cell)


def test_last_lines() -> None:
    assert runner.last_lines("a:  0%\ra: 50%\ra: 100%\r\nb\n") == "a: 100%\nb\n"
