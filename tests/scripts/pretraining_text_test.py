import runpy
import sys
from pathlib import Path

import pytest

from tests.support.pretraining_data import sentence, write_pretraining_data


def test_texts_have_no_sentences_of_test_sets(
    tmp_path: Path, repository_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = runpy.run_path(str(repository_root / "scripts" / "pretraining_text.py"))
    monkeypatch.setitem(script["main"].__globals__, "N_HELD_OUT_REVIEW_LINES", 3)
    data = write_pretraining_data(tmp_path / "data")
    command = ["", "make", str(data), str(tmp_path / "out"), "--reviews"]
    monkeypatch.setattr(sys, "argv", command)
    script["main"]()
    made = {
        path.name: path.read_text("utf-8").splitlines() for path in (tmp_path / "out").iterdir()
    }
    # Lines of the passage, lines between them, and a line that is further on; line 60 is empty.
    left_out = {*range(10, 31), 55, 60}
    novels = [sentence(f"n{i}") for i in range(70) if i not in left_out]
    wikitext = ["One train .", "Two <unk> , 1,000 . three ?", '" Four .']
    # Lines 5 to 7 are a review of the test set; one of the test reviews only quotes line 20.
    reviews = [sentence(f"r{i}") for i in range(30) if i not in (5, 6, 7)]
    train = novels + wikitext + reviews[:-6]
    assert made["train.txt"] != train and sorted(made["train.txt"]) == sorted(train)
    assert made["novels.valid.txt"][0] == "CHAPTER I" and len(made["novels.valid.txt"]) == 10
    assert len(made["novels.test.txt"]) == 20
    held_out = made["novels.valid.txt"] + made["wiki.valid.txt"] + reviews[-6:-3]
    assert made["valid.txt"] == held_out and made["reviews.test.txt"] == reviews[-3:]
    # "n't" is written in the ways of several tokenizers.
    runs = script["runs"]
    expected = runs("he didn't see it -- so he was")
    assert runs("He did n't see it , so he was") == runs("He didn 't see it so he was") == expected
