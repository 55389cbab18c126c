"""The scripts that make data for the task configs."""

import gzip
import json
import runpy
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def run(script, *arguments):
    command = [str(SCRIPTS / script), *map(str, arguments)]
    with patch.object(sys, "argv", command):
        runpy.run_path(command[0], run_name="__main__")


def test_imdb(tmp_path, capsys):
    pytest.importorskip("regex")
    source, output = tmp_path / "aclImdb", tmp_path / "out"
    texts = {
        "train/pos": "It's good.<br /><br />I liked \"it!\" Don't wait...",
        "train/neg": "Bad",
        "train/unsup": 'He left. "Go," she said. (No.) cafe\u0301 3\u00bd\u0939\u093f',
        "test/pos": "Only tested.",
        "test/neg": "Only tested!",
    }
    for folder, text in texts.items():
        (source / folder).mkdir(parents=True)
        for number in range(11):
            (source / folder / f"{number}_7.txt").write_text(text, encoding="utf-8")
    run("imdb.py", source, output)
    lines = {path.stem: path.read_text("utf-8").splitlines() for path in output.iterdir()}
    assert [len(lines[name]) for name in ("train", "validation", "test")] == [20, 2, 22]
    text = "It 's good . I liked \" it ! \" Do n't wait ..."
    assert json.loads(lines["train"][-1]) == {"text": text, "label": "pos"}
    expected = ["Bad", "It 's good .", 'I liked " it ! "', "Do n't wait ...", "Bad"]
    assert lines["text"][:5] == expected and "Only tested ." not in lines["text"]
    # A quote after a space opens; combining marks are parts of words.
    words = "cafe\u0301 3\u00bd\u0939\u093f"
    assert lines["text"][-3:] == ['" Go , " she said .', "( No . )", words]
    assert '"neg"' in lines["test"][0] and '"pos"' in lines["test"][1]
    with pytest.raises(SystemExit, match="2"):
        run("imdb.py", tmp_path, tmp_path / "other")
    assert "as in aclImdb\n" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_squad_is_split_by_articles(tmp_path):
    articles = [{"title": n, "paragraphs": []} for n in range(20)]
    (tmp_path / "all.json").write_text(json.dumps({"version": "1.1", "data": articles}))
    run("split_squad.py", tmp_path / "all.json", tmp_path)
    for name, titles in {"train": [*range(8), *range(10, 18)], "dev": [8, 18]}.items():
        part = json.loads((tmp_path / f"{name}.json").read_text())["data"]
        assert [article["title"] for article in part] == titles


def test_trees_are_written_without_empty_elements(tmp_path, capsys):
    pytest.importorskip("nltk")
    files = [tmp_path / f"{number}.mrg" for number in (1, 2, 3)]
    text = "( (S\r\n (NP-SBJ (-NONE- *))\r\n (VP (VB Go) (ADVP (RB home)))))\r\n( (UH Yes))\r\n"
    files[0].write_text(text)
    files[1].write_bytes(gzip.compress(b"(TOP (NP (NN ox) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))))"))
    run("treebank.py", *files)
    expected = ["(S (VP (VB Go) (ADVP (RB home))))", "(UH Yes)", "(TOP (NP (NN ox)))"]
    assert files[2].read_text(encoding="utf-8").splitlines() == expected
    with pytest.raises(SystemExit, match="2"):  # without OUTPUT, the last source stays
        run("treebank.py", *files[:2])
    assert "2.mrg exists" in capsys.readouterr().err


@pytest.mark.parametrize("script", ["imdb", "split_squad", "treebank", "python_reference_corpus"])
def test_mistakes_are_one_line(script, tmp_path, capsys):
    if script in ("imdb", "treebank"):
        pytest.importorskip("regex" if script == "imdb" else "nltk")
    (tmp_path / "bad").write_text("(S [", encoding="utf-8")
    bad = [tmp_path / "bad", tmp_path / "out"] if script in ("split_squad", "treebank") else ["-h"]
    for arguments in ([], bad):
        with pytest.raises(SystemExit, match="2"):
            run(f"{script}.py", *arguments)
        error = capsys.readouterr().err
        assert error.startswith("error: ") and error.count("\n") == 1
        usage = f"usage: python scripts/{script}.py "
        assert usage in error if arguments != bad or bad == ["-h"] else f"{bad[0]}: " in error
