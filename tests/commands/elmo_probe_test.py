"""`allennlp elmo-probe`, on sentences of a few words; tests/probing has what it computes."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.testing import read_files, refused, write_random_elmo

LINE = "elmo-probe --elmo elmo --train train --test test --output out"


@pytest.fixture(autouse=True)
def folder(run: Any) -> None:
    Path("elmo").mkdir()
    write_random_elmo("elmo")
    lines = ["the DT x", "run NN x", "ends VBZ x", "", "they PRP x", "run VBP x", ""]
    Path("train").write_text("\n".join(lines * 9), encoding="utf-8")
    Path("test").write_text("\n".join(lines[::-1]), encoding="utf-8")
    lines = [f"a 0 {i} run VB * run {sense} - - * -" for i, sense in enumerate(["01", "02", "-"])]
    Path("senses").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize("task", ["pos", "wsd"])
def test_command(task: str, run: Any, capsys: Any) -> None:
    pytest.importorskip("matplotlib")
    line = f"{LINE} --task {task}"
    if task == "wsd":
        line += " --train senses --test senses --columns 4,7,8"
    printed = run(line)
    label, key, n_test = ("tag", "word", 5) if task == "pos" else ("sense", "lemma", 2)
    header, _, baseline, *_ = printed.split("\n")
    assert header == f"| | all ({n_test}) | ambiguous (2) | unseen (0) | paper |"
    assert baseline.startswith(f"| most frequent {label} of the {key} | ")
    assert Path("out/results.md").read_text(encoding="utf-8") == printed
    assert Path("out/layers.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads(Path("out/results.json").read_text(encoding="utf-8"))
    n_train = 45 if task == "pos" else 2
    assert (results["n_train"], results["n_test"]["all"]) == (n_train, n_test)
    assert results["columns"] == ([1, 2] if task == "pos" else [4, 7, 8])
    assert (results["elmo"], results["task"], results["seed"]) == ("elmo", task, 0)
    assert results["max_examples"] == 100_000 and 0 < results["seconds"] < 60
    if task == "pos":  # All words but one have one tag, and that has two.
        assert results["baseline"]["all"] == 80.0
    assert "out is not empty; choose another output, or --force" in refused(capsys, *line.split())
    assert "2 examples to train" in run(f"{line} --force --max-examples 2 --seed 3")
    assert json.loads(Path("out/results.json").read_text(encoding="utf-8"))["seed"] == 3


def test_without_matplotlib(run: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run(f"{LINE} --task pos")
    assert "No pictures: they need matplotlib" in caplog.text
    assert read_files("out").keys() == {"results.json", "results.md"}
