import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.module_files import load_module
from tests.support.pretraining_data import sentence, write_pretraining_data


@pytest.fixture(scope="module")
def script(repository_root: Path) -> Any:
    """The script as a module."""
    return load_module(repository_root / "scripts" / "pretraining_text.py")


def make(script: Any, folder: Path, *options: str) -> Dict[str, List[str]]:
    """Return the lines of the texts."""
    data = write_pretraining_data(folder / "data")
    arguments = ["pretraining_text.py", "make", str(data), str(folder / "out"), *options]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", arguments)
        for _ in range(2):  # the same again
            script.main()
    return {p.name: p.read_text("utf-8").splitlines() for p in (folder / "out").iterdir()}


def test_runs_of_words_are_those_of_any_tokenizer(script: Any) -> None:
    texts = [
        "He did n't see it , so he was",
        "he didn't see it -- so he was",
        "He didn 't see it so he was",
    ]
    first, *others = [script.runs(text) for text in texts]
    assert len(first) == 2 and others == [first, first]
    assert script.runs("a b c d e f g") == set()
    assert len(script.runs("a b c d 2-\u00e9 f g h i")) == 2


def test_texts_have_no_passages_of_test_sets(script: Any, tmp_path: Path) -> None:
    made = make(script, tmp_path)
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


def test_texts_have_no_reviews_of_the_test_set(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "N_HELD_OUT_REVIEW_LINES", 3)
    text = make(script, tmp_path, "--reviews")
    # Lines 5 to 7 are a review of the test set; one of the test reviews only quotes line 20.
    expected = [sentence(f"r{i}") for i in range(30) if i not in (5, 6, 7)]
    assert [line for line in expected if line in text["train.txt"]] == expected[:-6]
    assert not any("again" in line or "bad" in line for line in text["train.txt"])
    assert text["reviews.valid.txt"] == expected[-6:-3] == text["valid.txt"][-3:]
    assert text["reviews.test.txt"] == expected[-3:]
