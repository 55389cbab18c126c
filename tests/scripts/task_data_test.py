"""The scripts that make data for the task configs."""

import gzip
import io
import json
import runpy
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, List
from unittest.mock import patch

import pytest

from tests.support.gensim_stand_in import stand_in_for_gensim


def _run(repository_root: Path, script: str, *arguments: Any) -> "subprocess.CompletedProcess[str]":
    """What a process would do that runs a script, without its seconds of imports."""
    command = [str(repository_root / "scripts" / script), *map(str, arguments)]
    stdout, stderr = io.StringIO(), io.StringIO()
    status: Any = 0
    with patch.object(sys, "argv", command), redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            runpy.run_path(command[0], run_name="__main__")
        except SystemExit as error:
            status = error.code or 0
            if isinstance(status, str):
                print(status, file=sys.stderr)
    return subprocess.CompletedProcess(command, status, stdout.getvalue(), stderr.getvalue())


def test_imdb(tmp_path: Path, repository_root: Path) -> None:
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
    assert _run(repository_root, "imdb.py", source, tmp_path / "out").returncode == 0
    lines = {
        path.name: path.read_text(encoding="utf-8").splitlines()
        for path in (tmp_path / "out").iterdir()
    }
    sizes = {"train.jsonl": 20, "validation.jsonl": 2, "test.jsonl": 22, "text.txt": 51}
    assert {name: len(found) for name, found in lines.items()} == sizes
    assert json.loads(lines["train.jsonl"][-1]) == {
        "text": "It 's good . I liked \" it ! \" Do n't wait ...",
        "label": "pos",
    }
    assert lines["text.txt"][:5] == [
        "Bad",
        "It 's good .",
        'I liked " it ! "',
        "Do n't wait ...",
        "Bad",
    ]
    labels = [json.loads(line)["label"] for line in lines["test.jsonl"]]
    assert labels == ["neg", "pos"] * 11  # so that the first lines have both
    assert "Only tested ." not in lines["text.txt"]
    failed = _run(repository_root, "imdb.py", tmp_path, tmp_path / "other")
    assert failed.returncode and "aclImdb" in failed.stderr
    (source / "test" / "neg" / "0_7.txt").write_bytes(b"caf\xe9")
    failed = _run(repository_root, "imdb.py", source, tmp_path / "other")
    assert "0_7.txt, line 1: byte 0xe9 is not UTF-8" in failed.stderr
    assert not (tmp_path / "other").exists()


def test_split_squad(tmp_path: Path, repository_root: Path) -> None:
    question = {"id": "a", "question": "?", "answers": []}
    articles = [
        {"title": str(n), "paragraphs": [{"context": "", "qas": [question] * n}]} for n in range(20)
    ]
    (tmp_path / "all.json").write_text(json.dumps({"version": "1.1", "data": articles}))
    run = _run(repository_root, "split_squad.py", tmp_path / "all.json", tmp_path / "squad")
    assert "dev.json: 2 articles, 26 questions" in run.stdout
    titles = {
        path.stem: [article["title"] for article in json.loads(path.read_text())["data"]]
        for path in (tmp_path / "squad").iterdir()
    }
    assert titles["dev"] == ["8", "18"] and titles["test"] == ["9", "19"]
    assert len(titles["train"]) == 16


def test_sentences_of_reviews(repository_root: Path) -> None:
    sentences = runpy.run_path(str(repository_root / "scripts" / "imdb.py"))["sentences"]

    def lines(text: str) -> List[str]:
        return [" ".join(words) for words in sentences(text)]

    # A quote after a space opens.
    assert lines('He left. "Go," she said. "Yes." (No.) Oh!') == [
        "He left .",
        '" Go , " she said .',
        '" Yes . "',
        "( No . )",
        "Oh !",
    ]
    # Combining marks are parts of words.
    assert lines("cafe\u0301 3\u00bd \u0939\u093f\u0928\u094d\u0926\u0940!") == [
        "cafe\u0301 3\u00bd \u0939\u093f\u0928\u094d\u0926\u0940 !"
    ]


def test_treebank(tmp_path: Path, repository_root: Path) -> None:
    files = [tmp_path / f"wsj_000{number}.mrg" for number in (1, 2)]
    files[0].write_text(
        "\n( (S\n   (NP-SBJ (-NONE- *))\n   (VP (VB Go) (ADVP (RB home)))))\n( (UH Yes))\n"
    )
    files[1].write_text("(TOP (NP (NN film) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))))")
    run = _run(repository_root, "treebank.py", *files, tmp_path / "out.mrg")
    assert "3 trees, 4 words" in run.stdout
    assert (tmp_path / "out.mrg").read_text(encoding="utf-8").splitlines() == [
        "(S (VP (VB Go) (ADVP (RB home))))",
        "(UH Yes)",
        "(TOP (NP (NN film)))",
    ]


def test_treebank_reads_line_ends_of_windows_marks_and_gzip(
    tmp_path: Path, repository_root: Path
) -> None:
    text = "( (S\n   (NP (PRP I))\n   (VP (VBP go))))\n( (UH Yes))\n"
    trees = "(S (NP (PRP I)) (VP (VBP go)))\n(UH Yes)\n"
    windows = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    (tmp_path / "windows.mrg").write_bytes(windows)
    (tmp_path / "compressed.mrg").write_bytes(gzip.compress(text.encode()))
    files = [tmp_path / f"{name}.mrg" for name in ("windows", "compressed", "out")]
    assert "4 trees, 6 words" in _run(repository_root, "treebank.py", *files).stdout
    assert files[-1].read_text(encoding="utf-8") == 2 * trees


def test_treebank_without_an_output_keeps_its_last_source(
    tmp_path: Path, repository_root: Path
) -> None:
    files = [tmp_path / "1.mrg", tmp_path / "2.mrg"]
    for file in files:
        file.write_text("(UH Yes)")
    failed = _run(repository_root, "treebank.py", *files)
    assert failed.returncode and "2.mrg exists" in failed.stderr
    (tmp_path / "3.mrg").write_bytes(b"(UH \xe9)")
    failed = _run(repository_root, "treebank.py", tmp_path / "3.mrg", tmp_path / "out")
    assert "3.mrg, line 1: byte 0xe9 is not UTF-8" in failed.stderr
    assert "Traceback" not in failed.stderr and not (tmp_path / "out").exists()


def test_word_vectors(
    tmp_path: Path, repository_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs the script, with a stand-in for gensim where it isn't installed."""
    (tmp_path / "text.txt.gz").write_bytes(
        gzip.compress(b"The film is The film is film\nthe the end\n" * 9)
    )
    stand_in_for_gensim(monkeypatch)
    script = str(repository_root / "scripts" / "word_vectors.py")
    for name in ("first.txt", "second.txt"):
        arguments = ["--dim", "4", "--epochs", "2", "--min-count", "9"]
        files = [str(tmp_path / "text.txt.gz"), str(tmp_path / name)]
        monkeypatch.setattr(sys, "argv", [script, *files, *arguments])
        runpy.run_path(script, run_name="__main__")
    first = (tmp_path / "first.txt").read_text(encoding="utf-8")
    assert first == (tmp_path / "second.txt").read_text(encoding="utf-8")
    rows = [line.split(" ") for line in first.splitlines()]
    assert [row[0] for row in rows] == ["the", "film", "is", "end"]
    assert all(len([float(number) for number in row[1:]]) == 4 for row in rows)
