"""Where `allennlp elmo` writes; what it writes is tested with `CorpusEmbedder`."""

import os
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from allennlp_elmo_plugin.embedding.corpus_embedder import check_output
from allennlp_elmo_plugin.embedding.layers_file import open_layers_file, read_summary
from tests.support.testing import tmpfs


def write(path: Path) -> None:
    with open_layers_file(str(path)) as file:
        file.add("0", np.ones((2, 3), "float32"))
        file.write_summary({"lines": 1})


def test_an_error_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "o")
    with pytest.raises(KeyError), open_layers_file(str(tmp_path / "o")) as file:
        file.add("0", np.zeros((2, 3), "float32"))
        raise KeyError
    assert os.listdir(tmp_path) == ["o"]
    with h5py.File(tmp_path / "o", "r") as written:
        assert list(written) == ["0"] and np.all(written["0"][...] == 1)
    assert read_summary(str(tmp_path / "o")) == {"lines": 1}


def test_files_of_others_have_no_summary(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "o", "w") as file:
        file.attrs["allennlp_elmo_plugin"] = "[1]"
    (tmp_path / "text").write_text("text")
    for name in ("o", "text", "missing"):
        assert read_summary(str(tmp_path / name)) is None


def test_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other", encoding="utf-8")
    (tmp_path / "o").symlink_to("other")
    write(tmp_path / "o")
    assert not (tmp_path / "o").is_symlink()
    assert (tmp_path / "other").read_text(encoding="utf-8") == "other"


def test_a_folder_that_is_read_only(tmp_path: Path) -> None:
    with tmpfs(tmp_path):
        remount = ["mount", "-o", "remount,ro", str(tmp_path)]
        subprocess.run(remount, check=True)
        with pytest.raises(OSError, match="cannot write into this folder"):
            check_output(str(tmp_path / "o"))


def test_devices_and_pipes_stay(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/null"):
        with pytest.raises(OSError, match=f"is a folder, a device or a pipe.*{path}"):
            check_output(path, overwrite=True)


def test_paths_that_name_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("", "c/", "."):
        with pytest.raises(OSError, match="is a folder"):
            check_output(name)
