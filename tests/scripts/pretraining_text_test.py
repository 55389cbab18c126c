import random
import re
import sys
from pathlib import Path
from typing import Any, Callable, List, Set, Tuple

import pytest

from allennlp_elmo_plugin.data.lexicon import Lexicon
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


def plain_runs(lines: List[str]) -> Set[Tuple[str, ...]]:
    words = re.findall("[a-z0-9]+", "\n".join(lines).lower())
    return {tuple(words[i : i + 8]) for i in range(len(words) - 7)}


@pytest.mark.parametrize("seed", range(5))
def test_shares(script: Any, seed: int) -> None:
    random_ = random.Random(seed)

    def lines() -> List[str]:
        return [
            " ".join(random_.choices(["A", "b", "2-é", "."], k=random_.choice([0, 1, 7, 8, 20])))
            for _ in range(30)
        ]

    text, units = lines(), lines()
    shares = script.Overlap(text).shares(units)
    for unit, share in zip(units, shares):
        words = re.findall("[a-z0-9]+", unit.lower())
        runs = [tuple(words[i : i + 8]) for i in range(len(words) - 7)]
        found = sum(run in plain_runs(text) for run in runs)
        assert share == (found / len(runs) if runs else 0)
    # As documents of their own.
    documents = script.Overlap(text, across_lines=False)
    runs_of_documents = set().union(*(plain_runs([line]) for line in text))
    assert len(documents._hashes) - 1 == len(runs_of_documents)
    assert list(script.Overlap([""]).shares(units)) == [0] * len(units)


def test_runs_of_any_tokenizer(script: Any) -> None:
    texts = [
        "He did n't see it , so he was",
        "he didn't see it -- so he was",
        "He didn 't see it so he was",
    ]
    lexicon = Lexicon()
    hashes = [script.ngrams(lexicon, [text])[0].tolist() for text in texts]
    assert hashes[0] == hashes[1] == hashes[2] and len(hashes[0]) == 2


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


def test_other_novels(run: Run, tmp_path: Path) -> None:
    data = write_pretraining_data(tmp_path / "data")
    (data / "novels" / "train-01.txt.gz").unlink()
    with pytest.raises(SystemExit, match="novels: must have the sentence 'You must go back"):
        run("make", data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_overlap(run: Run, tmp_path: Path, capsys: Any) -> None:
    data = write_pretraining_data(tmp_path / "data")
    texts = data / "novels" / "train-*.gz", data / "imdb" / "lm_train.tok.txt.gz"
    run("overlap", data, "--text", "novels", texts[0], "--text", "reviews", texts[1])
    assert (
        capsys.readouterr().out
        == """\
| test set | units | novels | reviews |
| --- | --- | --- | --- |
| constituency_treebank/test.mrg | 1 sentences | 1 (100.0%), 0 | 0 (0.0%), 0 |
| coref_litbank/dev.gold_conll | 1 passages | 1 (100.0%), 0 | 0 (0.0%), 0 |
| coref_litbank/test.gold_conll | 1 passages | 1 (100.0%), 0 | 0 (0.0%), 0 |
| coref_litbank/test.gold_conll | 5 sentences | 2 (40.0%), 2 | 0 (0.0%), 0 |
| imdb/test.tsv.gz | 2 reviews | 0 (0.0%), 0 | 2 (100.0%), 1 |
| ner_wikigold/test.conll4.txt | 3 sentences | 1 (33.3%), 1 | 0 (0.0%), 0 |
| ner_wnut17/test.conll4.txt | 1 sentences | 1 (100.0%), 1 | 0 (0.0%), 0 |
| snli_cad/original/test.jsonl | 2 sentences | 1 (50.0%), 0 | 0 (0.0%), 0 |
| squad/xquad.en.json | 2 paragraphs | 1 (50.0%), 1 | 0 (0.0%), 0 |
| sst5/test.txt | 1 sentences | 1 (100.0%), 0 | 0 (0.0%), 0 |
| wikitext2/valid.txt | 2 paragraphs | 0 (0.0%), 0 | 0 (0.0%), 0 |
| wikitext2/test.txt | 2 paragraphs | 0 (0.0%), 0 | 0 (0.0%), 0 |
"""
    )


def test_no_test_sets(run: Run, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has none of the test sets, such as chunk_conll2000"):
        run("overlap", tmp_path, "--text", "a", __file__)


def test_wrong_paths_are_one_line(run: Run, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="No file matches .*novels"):
        run("make", tmp_path, tmp_path / "out")
    data = write_pretraining_data(tmp_path / "data")
    (data / "sst5" / "test.txt").write_bytes(b"(3 (2 caf\xe9))\n")
    with pytest.raises(SystemExit, match="test.txt, line 1: byte 0xe9 is not UTF-8"):
        run("overlap", data, "--text", "a", __file__)
