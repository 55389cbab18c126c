"""The scripts that make data for the task configs."""

import gzip
import io
import json
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, List
from unittest.mock import patch

import pytest

from tests.support.gensim_stand_in import stand_in_for_gensim

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def run(script: str, *arguments: Any) -> str:
    """Run a script, and return what it prints."""
    command = [str(SCRIPTS / script), *map(str, arguments)]
    with patch.object(sys, "argv", command), redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(command[0], run_name="__main__")
    return printed.getvalue()


def test_imdb(tmp_path: Path) -> None:
    source = tmp_path / "aclImdb"
    texts = {
        "train/pos": "It's good.<br /><br />I liked \"it!\" Don't wait...",
        "train/neg": "Bad",
        "train/unsup": "No label here.",
        "test/pos": "Only tested.",
        "test/neg": "Only tested!",
    }
    for folder, text in texts.items():
        (source / folder).mkdir(parents=True)
        for number in range(11):
            (source / folder / f"{number}_7.txt").write_text(text, encoding="utf-8")
    run("imdb.py", source, tmp_path / "out")
    lines = {
        path.name: path.read_text("utf-8").splitlines() for path in (tmp_path / "out").iterdir()
    }
    sizes = {"train.jsonl": 20, "validation.jsonl": 2, "test.jsonl": 22, "text.txt": 51}
    assert {name: len(found) for name, found in lines.items()} == sizes
    text = "It 's good . I liked \" it ! \" Do n't wait ..."
    assert json.loads(lines["train.jsonl"][-1]) == {"text": text, "label": "pos"}
    expected = ["Bad", "It 's good .", 'I liked " it ! "', "Do n't wait ...", "Bad"]
    assert lines["text.txt"][:5] == expected and "Only tested ." not in lines["text.txt"]
    labels = [json.loads(line)["label"] for line in lines["test.jsonl"]]
    assert labels == ["neg", "pos"] * 11  # so that the first lines have both
    with pytest.raises(SystemExit, match="aclImdb"):
        run("imdb.py", tmp_path, tmp_path / "other")
    (source / "test" / "neg" / "0_7.txt").write_bytes(b"caf\xe9")
    with pytest.raises(SystemExit, match="0_7.txt, line 1: byte 0xe9 is not UTF-8"):
        run("imdb.py", source, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_sentences_of_reviews() -> None:
    sentences = runpy.run_path(str(SCRIPTS / "imdb.py"))["sentences"]

    def lines(text: str) -> List[str]:
        return [" ".join(words) for words in sentences(text)]

    # A quote after a space opens.
    expected = ["He left .", '" Go , " she said .', '" Yes . "', "( No . )", "Oh !"]
    assert lines('He left. "Go," she said. "Yes." (No.) Oh!') == expected
    # Combining marks are parts of words.
    words = "cafe\u0301 3\u00bd \u0939\u093f\u0928\u094d\u0926\u0940"
    assert lines(f"{words}!") == [f"{words} !"]


def test_squad_is_split_by_articles(tmp_path: Path) -> None:
    question = {"id": "a", "question": "?", "answers": []}
    articles = [
        {"title": str(n), "paragraphs": [{"context": "", "qas": [question] * n}]} for n in range(20)
    ]
    (tmp_path / "all.json").write_text(json.dumps({"version": "1.1", "data": articles}))
    printed = run("split_squad.py", tmp_path / "all.json", tmp_path / "squad")
    assert "dev.json: 2 articles, 26 questions" in printed
    titles = {
        path.stem: [article["title"] for article in json.loads(path.read_text())["data"]]
        for path in (tmp_path / "squad").iterdir()
    }
    assert titles["dev"] == ["8", "18"] and titles["test"] == ["9", "19"]
    assert len(titles["train"]) == 16


def test_trees_are_written_without_empty_elements(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.mrg" for number in (1, 2, 3)]
    text = "\n( (S\n   (NP-SBJ (-NONE- *))\n   (VP (VB Go) (ADVP (RB home)))))\n( (UH Yes))\n"
    files[0].write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    tree = "(TOP (NP (NN film) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))))"
    files[1].write_bytes(gzip.compress(tree.encode()))
    assert "3 trees, 4 words" in run("treebank.py", *files)
    expected = ["(S (VP (VB Go) (ADVP (RB home))))", "(UH Yes)", "(TOP (NP (NN film)))"]
    assert files[2].read_text(encoding="utf-8").splitlines() == expected
    # Without OUTPUT, the last source stays.
    with pytest.raises(SystemExit, match="2.mrg exists"):
        run("treebank.py", *files[:2])
    files[0].write_bytes(b"(UH \xe9)")
    with pytest.raises(SystemExit, match="1.mrg, line 1: byte 0xe9 is not UTF-8"):
        run("treebank.py", files[0], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_word_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for gensim where it isn't installed."""
    text = tmp_path / "text.txt.gz"
    text.write_bytes(gzip.compress(b"The film is The film is film\nthe the end\n" * 9))
    stand_in_for_gensim(monkeypatch)
    for name in ("first.txt", "second.txt"):
        options = ["--dim", "4", "--epochs", "2", "--min-count", "9"]
        run("word_vectors.py", text, tmp_path / name, *options)
    first = (tmp_path / "first.txt").read_text(encoding="utf-8")
    assert first == (tmp_path / "second.txt").read_text(encoding="utf-8")
    rows = [line.split(" ") for line in first.splitlines()]
    assert [row[0] for row in rows] == ["the", "film", "is", "end"]
    assert all(len([float(number) for number in row[1:]]) == 4 for row in rows)
