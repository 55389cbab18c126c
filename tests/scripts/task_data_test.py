"""The scripts that make data for the task configs."""

import json
import subprocess
import sys
from pathlib import Path


def _run(
    repository_root: Path, script: str, *arguments: Path
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, repository_root / "scripts" / script, *arguments]
    return subprocess.run(command, check=False, text=True, capture_output=True)


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
    assert lines["text.txt"][10:14] == [
        "It 's good .",
        'I liked " it ! "',
        "Do n't wait ...",
        "It 's good .",
    ]
    assert "Only tested ." not in lines["text.txt"]
    failed = _run(repository_root, "imdb.py", tmp_path, tmp_path / "out")
    assert failed.returncode and "aclImdb" in failed.stderr


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
