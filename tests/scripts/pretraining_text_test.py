import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from tests.support.module_files import load_module
from tests.support.pretraining_data import sentence, write_pretraining_data

Run = Callable[..., None]


@pytest.fixture(scope="module")
def script(repository_root: Path) -> Any:
    """The script as a module."""
    return load_module(repository_root / "scripts" / "pretraining_text.py")


@pytest.fixture
def run(script: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*arguments: Any) -> None:
        monkeypatch.setattr(sys, "argv", ["pretraining_text.py", *map(str, arguments)])
        script.main()

    return run


def test_runs_of_any_tokenizer(script: Any) -> None:
    texts = [
        "He did n't see it , so he was",
        "he didn't see it -- so he was",
        "He didn 't see it so he was",
    ]
    runs = [script.runs(text) for text in texts]
    assert runs[0] == runs[1] == runs[2] and len(runs[0]) == 2
    assert (
        script.runs("a b c d e f g") == set() and len(script.runs("a b c d 2-\u00e9 f g h i")) == 2
    )


def test_make(run: Run, tmp_path: Path) -> None:
    data = write_pretraining_data(tmp_path / "data")
    for _ in range(2):  # the same again
        run("make", data, tmp_path / "out")
        made = {p.name: p.read_text("utf-8").splitlines() for p in (tmp_path / "out").iterdir()}
        # Lines of the passage, lines between them, and a line that is further on.
        left_out = {*range(10, 31), 55}
        novels = [sentence(f"n{i}") for i in range(70) if i not in left_out and i != 60]
        wikitext = ["One train .", "Two <unk> , 1,000 . three ?", '" Four .']
        assert sorted(made["train.txt"]) == sorted(novels + wikitext)
        assert made["train.txt"] != novels + wikitext
        assert made["novels.valid.txt"][0] == "CHAPTER I" and len(made["novels.valid.txt"]) == 10
        assert len(made["novels.test.txt"]) == 20
        assert made["valid.txt"] == made["novels.valid.txt"] + made["wiki.valid.txt"]
        assert made["wiki.test.txt"][0] == "One test ."


def test_make_with_reviews(script: Any, run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(script, "N_HELD_OUT_REVIEW_LINES", 3)
    run("make", write_pretraining_data(tmp_path / "data"), tmp_path / "out", "--reviews")
    text = {p.name: p.read_text("utf-8").splitlines() for p in (tmp_path / "out").iterdir()}
    # Lines 5 to 7 are a review of the test set; one of the test reviews only quotes line 20.
    expected = [sentence(f"r{i}") for i in range(30) if i not in (5, 6, 7)]
    assert [line for line in expected if line in text["train.txt"]] == expected[:-6]
    assert not any("again" in line or "bad" in line for line in text["train.txt"])
    assert text["reviews.valid.txt"] == expected[-6:-3] == text["valid.txt"][-3:]
    assert text["reviews.test.txt"] == expected[-3:]
