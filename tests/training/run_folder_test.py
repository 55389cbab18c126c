"""The folder of a run under `train_model`; whole runs are in resumable_trainer_test.py."""

import os
from pathlib import Path
from typing import Any, List

import allennlp.commands.train
import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.training import util as training_util

from allennlp_elmo_plugin.data.vocabulary import write_vocabulary_folder
from allennlp_elmo_plugin.training import run_folder
from allennlp_elmo_plugin.training.run_folder import check_vocabulary_of_run
from tests.support.testing import fork, read_files

WORDS = ["<S>", "</S>", "<UNK>", "a", "b"]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> List[Any]:
    """What AllenNLP's `train_model` is called with, and the files that it finds."""
    found: List[Any] = []

    def train(
        params: Params, folder: Any, recover: bool, force: bool, node_rank: int, packages: List[str]
    ) -> None:
        assert packages == ["allennlp_elmo_plugin.registration"]  # for processes that are spawned
        run_folder.create_serialization_dir(params, folder, recover, force)
        found.append((recover, force, node_rank, sorted(os.listdir(folder))))
        params.to_file(os.path.join(folder, "config.json"))

    monkeypatch.setattr(run_folder, "_train_model", train)
    return found


def test_are_allennlps_functions() -> None:
    assert allennlp.commands.train.train_model is run_folder.train_model
    assert training_util.create_serialization_dir is run_folder.create_serialization_dir


def test_new_folder(tmp_path: Path, calls: List[Any]) -> None:
    run_folder.train_model(Params({}), str(tmp_path / "new" / "run"))
    (tmp_path / "empty").mkdir()
    run_folder.train_model(Params({}), tmp_path / "empty")
    assert calls == [(False, False, 0, [".run.lock"])] * 2
    with pytest.raises(ConfigurationError, match="already exists"):
        run_folder.train_model(Params({}), tmp_path / "empty")
    run_folder.train_model(Params({}), tmp_path / "empty", recover=True)
    assert calls[2:] == [(True, False, 0, [".run.lock", "config.json"])]


@pytest.mark.parametrize("vocabulary", ["from_instances", {}, {"type": "from_instances"}, None])
def test_other_ways_to_a_vocabulary(tmp_path: Path, calls: List[Any], vocabulary: Any) -> None:
    for recover in (False, True):
        params = Params({"vocabulary": vocabulary})
        run_folder.train_model(params, tmp_path / "run", recover=recover)
    assert [recover for recover, *_ in calls] == [False, True]


def test_force(tmp_path: Path, calls: List[Any]) -> None:
    (tmp_path / "run" / "vocabulary").mkdir(parents=True)
    (tmp_path / "run" / "vocabulary" / "tokens.txt").touch()
    (tmp_path / "kept.txt").touch()
    (tmp_path / "run" / "link").symlink_to(tmp_path)
    # As a mount point, the folder itself can't be removed.
    inode = (tmp_path / "run").stat().st_ino
    run_folder.train_model(Params({}), tmp_path / "run", force=True)
    assert calls == [(False, False, 0, [".run.lock"])]
    assert (tmp_path / "run").stat().st_ino == inode and (tmp_path / "kept.txt").exists()


def test_killed_while_it_removes_the_run_before(tmp_path: Path, calls: List[Any]) -> None:
    """What is left of it can't be recovered: it would go on without a part of its files."""
    for moment in range(10):
        for name in ("best.th", "config.json", "vocabulary/lm_tokens.txt", "out.log"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("{}", encoding="utf-8")
        fork(lambda: run_folder.train_model(Params({}), tmp_path, force=True), kill_at=moment)
        names = set(read_files(tmp_path)) - {".run.lock"}
        assert len(names) == 4 or "config.json" not in names or names == {"config.json"}


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "already exists"),
        ({"recover": True}, "doesn't contain a config.json"),
        ({"recover": True, "force": True}, "both force and recover"),
    ],
)
def test_refused_folders_stay_as_they_are(
    tmp_path: Path, calls: List[Any], arguments: Any, message: str
) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigurationError, match=message):
        run_folder.train_model(Params({}), tmp_path, **arguments)
    assert list(read_files(tmp_path)) == ["thesis.tex"]


def test_nothing_to_recover(tmp_path: Path, calls: List[Any]) -> None:
    with pytest.raises(ConfigurationError, match="nothing to recover from"):
        run_folder.train_model(Params({}), tmp_path / "run", recover=True)
    assert not (tmp_path / "run").exists()


def test_killed_before_anything_was_written(tmp_path: Path, calls: List[Any]) -> None:
    (tmp_path / ".run.lock").touch()
    (tmp_path / ".config.json.partial").mkdir()
    run_folder.train_model(Params({}), tmp_path, recover=True)
    assert calls == [(False, False, 0, [".config.json.partial", ".run.lock"])]


@pytest.mark.parametrize("arguments", [{}, {"recover": True}, {"force": True}])
def test_machines_that_share_a_folder(tmp_path: Path, calls: List[Any], arguments: Any) -> None:
    (tmp_path / "config.json").write_text("{}" if arguments else "", encoding="utf-8")
    if not arguments:
        (tmp_path / "config.json").unlink()
    with run_folder.locked_folder(tmp_path, ConfigurationError("in use")):
        with pytest.raises(ConfigurationError, match="each machine needs a folder of its own"):
            run_folder.train_model(Params({}), tmp_path, node_rank=1, **arguments)
    assert calls == []
    run_folder.train_model(Params({}), tmp_path, node_rank=1, **arguments)
    assert calls[0][2] == 1


def test_a_machine_that_comes_later_is_not_told_to_recover(
    tmp_path: Path, calls: List[Any]
) -> None:
    """The first one has already written its files."""
    with run_folder.locked_folder(tmp_path, ConfigurationError("in use")):
        (tmp_path / "config.json").write_text("{}", encoding="utf-8")
        with pytest.raises(ConfigurationError, match="each machine needs a folder of its own"):
            run_folder.train_model(Params({}), tmp_path, node_rank=1)
    with pytest.raises(ConfigurationError, match="already exists"):
        run_folder.train_model(Params({}), tmp_path, node_rank=1)
    assert calls == []


class TestVocabulary:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        write_vocabulary_folder(tmp_path / "run" / "vocabulary", WORDS)
        (tmp_path / "run" / "best.th").touch()
        return tmp_path / "run"

    @staticmethod
    def make(words: List[str]) -> Vocabulary:
        return Vocabulary(
            non_padded_namespaces=["lm_tokens"], tokens_to_add={"lm_tokens": list(words)}
        )

    @pytest.mark.parametrize(
        "words, message",
        [
            ([*WORDS[:3], "b", "a"], "word 3 is 'a' in .*, but 'b' in the configuration's"),
            ([*WORDS, "c"], "5 words against 6, and word 5 is none in .*, but 'c'"),
            (WORDS[:-1], "5 words against 4, and word 4 is 'b' in .*, but none"),
        ],
    )
    def test_another(self, run: Path, words: List[str], message: str) -> None:
        with pytest.raises(ConfigurationError, match=f"{run}: .*{message}"):
            check_vocabulary_of_run(self.make(words), run)

    def test_the_same(self, run: Path) -> None:
        check_vocabulary_of_run(self.make(WORDS), run)

    def test_before_training(self, run: Path) -> None:
        (run / "best.th").unlink()
        check_vocabulary_of_run(self.make(WORDS[:-1]), run)
        with pytest.raises(ConfigurationError, match="another vocabulary"):
            check_vocabulary_of_run(self.make(WORDS[:-1]), run, before_training=True)

    def test_of_another_model(self, run: Path) -> None:
        (run / "vocabulary" / "lm_tokens.txt").rename(run / "vocabulary" / "tokens.txt")
        check_vocabulary_of_run(self.make(WORDS[:-1]), run)
