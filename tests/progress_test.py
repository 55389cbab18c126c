from typing import Any

import pytest

from allennlp_elmo_plugin.progress import progress_bar


def test_stays_when_the_work_is_done(capsys: Any) -> None:
    with progress_bar(total=2, desc="counting") as bar:
        bar.update(2)
    shown = capsys.readouterr().err
    assert shown.endswith("\n") and "counting: 100%" in shown.split("\r")[-1]


def test_vanishes_before_an_error(capsys: Any) -> None:
    with pytest.raises(ValueError):
        with progress_bar(total=2, desc="counting"):
            raise ValueError("bad")
    *_, blank, last = capsys.readouterr().err.split("\r")
    assert blank.strip(" ") == "" and last == ""


def test_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    with progress_bar(total=2, desc="counting") as bar:
        bar.update(2 - bar.n)
        bar.set_postfix_str("two")
