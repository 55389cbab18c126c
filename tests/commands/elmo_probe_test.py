"""The command, on sentences of a few words. tests/probing has what it computes."""

import json
import sys
from pathlib import Path
from typing import Any, List

import pytest
from allennlp.commands import main
from allennlp.common import logging as common_logging

from allennlp_elmo_plugin.commands.elmo_probe import probe
from tests.support.testing import refused, write_random_elmo


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> List[str]:
    monkeypatch.setattr(common_logging, "FILE_FRIENDLY_LOGGING", False)
    monkeypatch.chdir(tmp_path)
    Path("elmo").mkdir()
    write_random_elmo("elmo")
    lines = ["the DT x", "run NN x", "ends VBZ x", "", "they PRP x", "run VBP x", ""]
    Path("train").write_text("\n".join(lines * 9), encoding="utf-8")
    Path("test").write_text("\n".join(lines[::-1]), encoding="utf-8")
    Path("text").write_text("They run .\nIt ends .\n", encoding="utf-8")
    lines = [f"a 0 {i} run VB * run {sense} - - * -" for i, sense in enumerate(["01", "02", "-"])]
    Path("senses").write_text("\n".join(lines), encoding="utf-8")
    return "--elmo elmo --train train --test test --output out".split()


@pytest.mark.parametrize("task", ["pos", "wsd"])
def test_command(
    task: str, arguments: List[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("matplotlib")
    if task != "pos":
        arguments += ["--train", "senses", "--test", "senses"]
    argv = ["allennlp", "elmo-probe", "--task", task, *arguments]
    monkeypatch.setattr(sys, "argv", argv)
    main()
    printed = capsys.readouterr().out
    label, key, n_test = ("tag", "word", 5) if task == "pos" else ("sense", "lemma", 2)
    assert f"| | all ({n_test}) | ambiguous (2) | unseen (0) | paper |" in printed
    assert f"| most frequent {label} of the {key} | " in printed
    assert "| LSTM 1, backward | " in printed
    assert Path("out/results.md").read_text(encoding="utf-8") == printed
    assert Path("out/layers.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads(Path("out/results.json").read_text(encoding="utf-8"))
    assert results["n_test"]["all"] == n_test
    assert results["n_train"] == (45 if task == "pos" else 2)
    (row,) = (row for row in results["layers"] if row["name"] == "LSTM 2")
    paper = 96.8 if task == "pos" else "69.0"
    cells = [row["accuracy"]["all"], row["accuracy"]["ambiguous"]]
    assert f"| LSTM 2 | {cells[0]:.2f} | {cells[1]:.2f} |  | {paper} |" in printed

    assert "out is not empty; choose another output, or --force" in refused(capsys, *argv[1:])
    monkeypatch.setattr(sys, "argv", [*argv, "--force", "--max-examples", "2"])
    main()
    assert "2 examples to train" in capsys.readouterr().out


def test_without_matplotlib(
    arguments: List[str], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    table = probe("elmo", "pos", "train", "test", "out", columns=[1, 3 - 1], seed=3)
    assert table == Path("out/results.md").read_text(encoding="utf-8")
    assert "No picture: it needs matplotlib" in caplog.text
    assert sorted(path.name for path in Path("out").iterdir()) == ["results.json", "results.md"]


@pytest.mark.parametrize(
    "change, message",
    [
        (["--task", "ner"], "argument --task: invalid choice: 'ner'"),
        (["--elmo", "nowhere"], "--elmo nowhere: "),
        (["--elmo", "elmo/missing.json"], "--elmo elmo/missing.json: "),
        (["--train", "nowhere"], "nowhere does not exist"),
        (["--test", "elmo/weights.hdf5"], "elmo/weights.hdf5, line 1: byte 0x89 is not UTF-8"),
        (["--output", "train"], "train is a file, not a folder"),
        (["--columns", "1;2"], "argument --columns: invalid numbers value: '1;2'"),
        (["--columns", "1,2,3"], "--columns is 1,2,3; for --task pos, give 2 numbers from 1: the"),
        (["--columns", "0,1"], "--columns is 0,1; for --task pos"),
        (["--columns", "1,4"], "train, line 1: 3 columns, but --columns names column 4"),
        (["--columns", "1,3"], "all tags of the training data are 'x'"),
        (["--task", "wsd"], "train, line 1: 3 columns, but --columns names column 8"),
        (["--max-examples", "0"], "--max-examples is 0"),
        (["--test", "text"], "no tag of text occurs in train; give files with the same tags. --co"),
    ],
)
def test_mistakes(change: List[str], message: str, arguments: List[str], capsys: Any) -> None:
    assert message in refused(capsys, "elmo-probe", "--task", "pos", *arguments, *change)
    assert not Path("out").exists()
