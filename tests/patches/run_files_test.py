import errno
import fcntl
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.meta import Meta
from allennlp.data import Vocabulary
from allennlp.training import checkpointer
from allennlp.training.checkpointer import Checkpointer

from allennlp_elmo_plugin.files.locks import locked_folder
from tests.support.testing import fork, read_files, tmpfs


class TestFilesOfRuns:
    """A recovered run writes them again: what is there stays until the new ones are complete."""

    def test_folder_around_a_vocabulary(self, tmp_path: Path) -> None:
        self._save(tmp_path, "one")
        vocab = Vocabulary.from_params(Params({"type": "from_files", "directory": str(tmp_path)}))
        assert vocab.get_token_index("one", "tokens") == 2
        extended = Vocabulary.from_files_and_instances([], str(tmp_path))
        assert extended.get_token_index("one", "labels") == 0
        (tmp_path / "vocabulary" / "non_padded_namespaces.txt").unlink()
        with pytest.raises(FileNotFoundError):
            Vocabulary.from_files(str(tmp_path))

    @staticmethod
    def _save(folder: Path, word: str) -> None:
        Params({"word": word}).to_file(str(folder / "config.json"))
        Meta(word).to_file(folder / "meta.json")
        vocab = Vocabulary(tokens_to_add={"tokens": [word], "labels": [word]})
        vocab.save_to_files(str(folder / "vocabulary"))

    def test_saved(self, tmp_path: Path) -> None:
        for word in ("one", "another"):
            self._save(tmp_path, word)
            assert Params.from_file(tmp_path / "config.json").params == {"word": word}
            assert Meta.from_path(tmp_path / "meta.json").version == word
            vocab = Vocabulary.from_files(str(tmp_path / "vocabulary"))
            assert vocab.get_token_index(word, "tokens") == 2
            assert vocab.get_token_index(word, "labels") == 0
        assert {name for name in read_files(tmp_path) if Path(name).name != ".lock"} == {
            "config.json",
            "meta.json",
            *(f"vocabulary/{name}.txt" for name in ("labels", "tokens", "non_padded_namespaces")),
        }

    def test_a_vocabulary_in_the_folder_of_a_run_that_is_locked(self, tmp_path: Path) -> None:
        """As a callback may save it there."""
        vocab = Vocabulary(tokens_to_add={"tokens": ["one"]})
        with locked_folder(tmp_path, ConfigurationError("in use")):
            assert fork(lambda: signal.alarm(60) or vocab.save_to_files(str(tmp_path))) == 0
            vocab.save_to_files(str(tmp_path))
            assert Vocabulary.from_files(str(tmp_path)).get_token_index("one") == 2

    def test_killed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._save(tmp_path, "one")
        before = read_files(tmp_path)

        def fail(*args: Any, **kwargs: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("json.dump", fail)
        monkeypatch.setattr("allennlp.data.vocabulary.print", fail, raising=False)
        vocab = Vocabulary(tokens_to_add={"tokens": ["another"]})
        for save in (
            lambda: Params({}).to_file(str(tmp_path / "config.json")),
            lambda: Meta("another").to_file(tmp_path / "meta.json"),
            lambda: vocab.save_to_files(str(tmp_path / "vocabulary")),
        ):
            with pytest.raises(KeyboardInterrupt):
                save()
        assert read_files(tmp_path) == before

    def test_vocabulary_killed_at_any_moment(self, tmp_path: Path) -> None:
        vocabs = [Vocabulary(tokens_to_add={"tokens": [word]}) for word in ("one", "another")]
        for moment in range(100):
            vocabs[0].save_to_files(str(tmp_path))
            killed = fork(lambda: vocabs[1].save_to_files(str(tmp_path)), moment) == signal.SIGKILL
            word = Vocabulary.from_files(str(tmp_path)).get_token_from_index(2, "tokens")
            assert word in ("one", "another")
            vocabs[1].save_to_files(str(tmp_path))
            assert set(os.listdir(tmp_path)) == {".lock", "tokens.txt", "non_padded_namespaces.txt"}
            if not killed:
                break
        assert moment > 10 and word == "another"

    def test_two_nodes_at_once(self, tmp_path: Path) -> None:
        nodes = [
            fork(lambda: [self._save(tmp_path, "one") for _ in range(20)], wait=False)
            for _ in range(2)
        ]
        assert [os.waitpid(node, 0)[1] for node in nodes] == [0, 0]

    def test_vocabulary_where_nothing_can_be_locked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*args: Any) -> None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        self._save(tmp_path, "one")
        (tmp_path / "vocabulary" / ".lock").write_text("1\nanother host\n", encoding="utf-8")
        monkeypatch.setattr(fcntl, "flock", fail)
        self._save(tmp_path, "another")
        assert Vocabulary.from_files(str(tmp_path / "vocabulary")).get_vocab_size("tokens") == 3

    def test_vocabulary_that_is_read_only(self, tmp_path: Path) -> None:
        with tmpfs(tmp_path):
            self._save(tmp_path, "one")
            (tmp_path / "vocabulary" / ".lock").unlink()
            subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
            vocab = Vocabulary.from_files(str(tmp_path / "vocabulary"))
            assert vocab.get_vocab_size("tokens") == 3
            with pytest.raises(OSError, match="Read-only"):
                vocab.save_to_files(str(tmp_path / "vocabulary"))


@pytest.mark.parametrize("name", ["run", "run[1]", "run*", "?"])
@pytest.mark.parametrize("sharded", [False, True])
def test_checkpoints_are_found_whatever_the_name_of_the_folder(
    tmp_path: Path, name: str, sharded: bool
) -> None:
    saver = Checkpointer(tmp_path / name)
    saver.state_is_sharded = sharded
    ending = "_w0.th" if sharded else ".th"
    (tmp_path / name).mkdir()
    others = ["best.th", "model_state_e2_b0.th.incomplete"] + ["model_state_e3_b0_w1.th"] * sharded
    for file in [f"model_state_e0_b5{ending}", f"model_state_e1_b0{ending}", *others]:
        (tmp_path / name / file).touch()
    assert saver._find_all_checkpoints() == {(0, 5), (1, 0)}


def test_checkpoints_are_saved_after_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: List[Any] = []
    monkeypatch.setattr(checkpointer.time, "time", lambda: 5000.0)
    saver = Checkpointer(tmp_path, save_every_num_seconds=60)
    monkeypatch.setattr(saver, "save_checkpoint", saved.append)
    for now in (1000.0, 1059.0, 1060.0):
        monkeypatch.setattr(checkpointer.time, "time", lambda now=now: now)
        saver.maybe_save_checkpoint(now, 0, 1)
    assert saved == [1060.0]


class Interrupting:
    """Ctrl-C while an object is pickled."""

    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


def trainer(n_epochs: int, **changes: Any) -> Any:
    """What the checkpointer needs of a trainer; `changes` are the last entries of its states."""
    point = {"epochs_completed": n_epochs, "batches_in_epoch_completed": 0}
    state = {"model_state": {"a": torch.ones(3)}, "trainer_state": point}
    for name, value in changes.items():
        state[name] = {**state[name], "last": value}
    return SimpleNamespace(get_checkpoint_state=lambda: SimpleNamespace(**state))


@pytest.mark.parametrize("interrupted", ["model_state", "trainer_state"])
def test_an_interrupted_checkpoint_is_removed(tmp_path: Path, interrupted: str) -> None:
    saver = Checkpointer(tmp_path)
    saver.save_checkpoint(trainer(1))
    before = read_files(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        saver.save_checkpoint(trainer(2, **{interrupted: Interrupting()}))
    assert read_files(tmp_path) == before
    saver.save_checkpoint(trainer(2))
    assert saver.find_latest_checkpoint()[0].endswith("model_state_e2_b0.th")


def test_a_checkpoint_stays_whose_predecessor_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes after both files were saved, while the checkpoint before is removed."""
    saver = Checkpointer(tmp_path, keep_most_recent_by_count=1)
    saver.save_checkpoint(trainer(1))
    remove = os.remove

    def interrupted_remove(path: str) -> None:
        remove(path)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "remove", interrupted_remove)
    with pytest.raises(KeyboardInterrupt):
        saver.save_checkpoint(trainer(2))
    monkeypatch.undo()
    found = saver.find_latest_checkpoint()
    assert found is not None and found[0].endswith("model_state_e2_b0.th")
    assert torch.load(found[1])["epochs_completed"] == 2
