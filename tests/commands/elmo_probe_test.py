"""`allennlp elmo-probe`; tests/analysis/probing_test.py has the probes."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.testing import read_files, refused, write_random_elmo

LINE = "elmo-probe --elmo elmo --output out"


@pytest.fixture(autouse=True)
def folder(run):
    write_random_elmo("elmo")
    lines = ["the DT x", "run NN x", "ends VBZ x", "", "they PRP x", "run VBP x", ""]
    Path("train").write_text("\n".join(lines * 9), encoding="utf-8")
    Path("test").write_text("\n".join(lines[::-1]), encoding="utf-8")
    lines = [f"a 0 {i} run VB * run {sense} - - * -" for i, sense in enumerate(["01", "02", "-"])]
    Path("senses").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize(
    "task, first, counts, columns",
    [("pos", "tag of the word", (45, 5), [1, 2]), ("wsd", "sense of the lemma", (2, 2), [4, 7, 8])],
)
def test_command(task, first, counts, columns, run, capsys):
    pytest.importorskip("matplotlib")
    files = "--train train --test test" if task == "pos" else "--train senses --test senses"
    line = f"{LINE} --task {task} {files}"
    printed = run(line)
    assert f"all ({counts[1]}) | ambiguous (2) | unseen (0)" in printed
    assert f"| most frequent {first} | " in printed
    assert Path("out/results.md").read_text(encoding="utf-8") == printed
    assert Path("out/layers.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads(Path("out/results.json").read_text(encoding="utf-8"))
    assert (results["n_train"], results["n_test"]["all"]) == counts
    assert (results["elmo"], results["task"], results["columns"]) == ("elmo", task, columns)
    if task == "pos":  # The token layer can't know the tag of "run".
        assert results["layers"][0]["accuracy"]["all"] == 80.0
    assert "out is not empty; choose another output, or --force" in refused(capsys, *line.split())
    changed = f"--force --max-examples 2 --columns {','.join(map(str, columns))}"
    changed = f"{line} {changed}".replace("--elmo", "--model")
    assert "2 examples to train" in run(changed)


def test_without_matplotlib(run, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = f"{LINE} --task pos --train train --test test"
    assert "--columns: give 2 numbers, from 1" in refused(capsys, *line.split(), "--columns", "0,1")
    run(line)
    assert read_files("out").keys() == {"results.json", "results.md"}
