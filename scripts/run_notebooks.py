"""
Run notebooks from top to bottom and store their outputs.

    python scripts/run_notebooks.py notebooks/*.ipynb
"""

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient


def last_lines(text: str) -> str:
    """Return what a terminal shows in the end: of a progress bar, the last state."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1].rstrip() for line in lines)


def run_notebook(path: Path) -> Any:
    """Return a notebook with the outputs of all its cells, which run in its folder."""
    notebook = nbformat.read(path, as_version=4)
    # The commands in cells are those of this Python.
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    # tqdm's, where Jupyter has no widgets.
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"
    NotebookClient(
        notebook,
        timeout=3600,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
        coalesce_streams=True,
    ).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output.text = last_lines(output.text)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


if __name__ == "__main__":
    for name in sys.argv[1:]:
        nbformat.write(run_notebook(Path(name)), name)
