from pathlib import Path

import pytest

from tests.commands.conftest import run  # noqa: F401  (a fixture)
from tests.conftest import import_plugins_once
from tests.support.task_data import write_task_data
from tests.support.testing import write_random_elmo


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with an ELMo, word vectors, and data of all kinds of tasks."""
    import_plugins_once()
    monkeypatch.chdir(tmp_path)
    Path("elmo").mkdir()
    write_random_elmo("elmo")
    Path("vectors.txt").write_text("the 1 2 3\nfilm 4 5 6\n", encoding="utf-8")
    return write_task_data(Path("data"))
