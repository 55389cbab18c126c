"""The file of layers under accidents; what is in it is tested with `CorpusEmbedder`."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any, List

import h5py
import numpy as np
import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.embedding import journaled_file
from allennlp_elmo_plugin.embedding.layers_file import LayersFile, check_output
from tests.support.testing import fork, tmpfs


def write(path: Path, n_sentences: int = 4, checkpoints: bool = True, **keywords: Any) -> None:
    with LayersFile(str(path), **keywords) as file:
        for number in range(file.progress.get("n", 0), n_sentences):
            file.add(str(number), np.full((2, 3), number))
            file.add_mapping(f"sentence {number}", str(number))
            if checkpoints:
                file.checkpoint({"n": number + 1})
        file.write_mapping(["sentence_to_index"])
        file.finish({"n": n_sentences})


def read(path: Path) -> Any:
    with h5py.File(path, "r") as file:
        return {name: file[name][...].tolist() for name in file}


def test_numbers_that_float16_lacks(tmp_path: Path) -> None:
    layers = np.array([[65504, -1e-3]], "float32")
    with LayersFile(str(tmp_path / "o"), dtype="float16") as file:
        file.add("0", layers)
    with pytest.raises(ConfigurationError, match="key '1' have numbers beyond those of float16"):
        with LayersFile(str(tmp_path / "p"), dtype="float16") as file:
            file.add("0", layers)
            file.add("1", 2 * layers)
    assert os.listdir(tmp_path) == ["o"]


def test_killed_at_any_moment(tmp_path: Path) -> None:
    write(tmp_path / "expected")
    path = tmp_path / "o"
    for moment in range(1000):
        killed = fork(lambda: write(path), kill_at=moment) == signal.SIGKILL
        if path.exists():
            assert read(path) == read(tmp_path / "expected")
            os.remove(path)
        write(path, resume=True)
        assert read(path) == read(tmp_path / "expected")
        assert sorted(os.listdir(tmp_path)) == ["expected", "o"]
        os.remove(path)
        if not killed:
            break
    assert moment > 10


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path: Path) -> None:
    path = tmp_path / "o"

    def die() -> None:
        with LayersFile(str(path)) as file:
            file.add("0", np.zeros((2, 3)))
            os.kill(os.getpid(), signal.SIGKILL)

    assert fork(die) == signal.SIGKILL
    assert path.with_name("o.partial").exists()
    write(path)
    assert os.listdir(tmp_path) == ["o"]
    for moment in range(100):
        os.remove(path)
        if fork(lambda: write(path, checkpoints=False), kill_at=moment) == 0:
            break
        if not path.exists():
            write(path)
    assert moment > 5
    (tmp_path / "mine.partial").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="mine.partial is there"):
        write(tmp_path / "mine")


def test_nobody_begins_while_a_file_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "o"
    replace = os.replace

    def rename(source: Any, target: Any) -> None:
        if target == str(path):
            with pytest.raises(ConfigurationError, match="written by another process"):
                write(path, n_sentences=1, overwrite=True)
        replace(source, target)

    with monkeypatch.context() as context:
        context.setattr(os, "replace", rename)
        write(path)
    assert len(read(path)) == 5


def test_another_process_finishes_it_before_this_one_begins(tmp_path: Path) -> None:
    late = LayersFile(str(tmp_path / "o"))
    write(tmp_path / "o")
    before = (tmp_path / "o").read_bytes()
    with pytest.raises(ConfigurationError, match="exists already"), late:
        pass
    assert os.listdir(tmp_path) == ["o"] and (tmp_path / "o").read_bytes() == before


def test_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other", encoding="utf-8")
    (tmp_path / "o").symlink_to("other")
    write(tmp_path / "o", overwrite=True)
    assert not (tmp_path / "o").is_symlink()
    assert (tmp_path / "other").read_text(encoding="utf-8") == "other"


def test_a_folder_that_is_read_only(tmp_path: Path) -> None:
    with tmpfs(tmp_path):
        remount = ["mount", "-o", "remount,ro", str(tmp_path)]
        subprocess.run(remount, check=True)
        with pytest.raises(ConfigurationError, match="/o: nothing can be written to"):
            check_output(str(tmp_path / "o"))


def test_devices_and_pipes_stay(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/null"):
        with pytest.raises(ConfigurationError, match=f"{path}: it is a device or a pipe"):
            check_output(path, overwrite=True)


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("~/a", "b", "naïve 東京"):
        write(Path(name))
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "naïve 東京"]
    for name in ("", "c/", "."):
        with pytest.raises(ConfigurationError, match="cannot write"):
            check_output(name)


def test_another_run_begins_while_this_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "layers.hdf5")
    others: List[Any] = []

    def begin_another(folder: Any) -> None:
        if not others:
            others.append(LayersFile(path, overwrite=True).__enter__())

    monkeypatch.setattr(journaled_file, "sync_folder", begin_another)
    with LayersFile(path) as file:
        file.add("0", np.zeros((3, 2, 4)))
        file.checkpoint({"lines": 1})
    (other,) = others
    other.add("0", np.ones((3, 2, 4)))
    other.checkpoint({"lines": 1})
    other.__exit__(None, None, None)
    assert os.listdir(tmp_path) == ["layers.hdf5"]
    assert np.all(read(Path(path))["0"])
