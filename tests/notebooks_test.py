"""The notebooks run, and their stored outputs are those of a run from top to bottom."""

import os
import shutil
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def texts(notebook):
    """Return what each code cell prints, and the value that it shows."""
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(x.get("text") or x.data.get("text/plain", "") for x in o) for o in outputs]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for output in (output for cell in cells for output in cell.outputs):
        assert output.output_type != "error" and output.get("name") != "stderr"
    for unwanted in ("Warning", "Traceback", "error", "site-packages", "/home", "/tmp", "\r"):
        assert unwanted not in "".join(texts(notebook))
    assert os.path.getsize(path) < 200_000


@pytest.mark.nightly
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_print_as_many_lines_as_stored(path, tmp_path, monkeypatch):
    """With a training of five batches."""
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    shutil.copytree(ROOT / "training_config", tmp_path / "training_config")
    with open(tmp_path / "training_config" / "pretrain" / "demo.jsonnet", "a") as config:
        config.write("+ { data_loader+: { batches_per_epoch: 5 } }\n")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONWARNINGS", "ignore:IProgress not found")
    for name, value in {"NOTEBOOK_EPOCHS": 1, "PYTHONPATH": ROOT, "TQDM_DISABLE": 1}.items():
        monkeypatch.setenv(name, str(value))
    notebook = nbformat.read(path, as_version=4)
    expected = [text.count("\n") for text in texts(notebook)]
    resources = {"metadata": {"path": str(tmp_path / "notebooks")}}
    nbclient.NotebookClient(notebook, timeout=3600, resources=resources).execute()
    assert [text.count("\n") for text in texts(notebook)] == expected
