import gzip
import json
import random
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Set, Tuple

import pytest

from allennlp_elmo_plugin.data.lexicon import Lexicon
from tests.support.module_files import load_module

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


def sentence(name: str, n: int = 9) -> str:
    """Words that no other sentence has."""
    return " ".join(f"{name}x{i}" for i in range(n))


def columns(lines: List[str], n_before: int) -> str:
    return "".join(
        "".join("- " * n_before + f"{word} -\n" for word in line.split()) + "\n" for line in lines
    )


def write_data(folder: Path) -> Path:
    texts: Dict[str, str] = {}
    novels = [sentence(f"n{i}") for i in range(100)]
    novels[60] = ""
    novels[70] = novels[80] = "CHAPTER I"
    novels[71] = "You must go back with me to the autumn of 1827 ."
    novels[81] = (
        "Mr Verloc , going out in the morning , left his shop nominally in charge of his "
        "brother-in-law ."
    )
    texts["novels/train-00.txt.gz"] = "\n".join(novels[:50]) + "\n"
    texts["novels/train-01.txt.gz"] = "\n".join(novels[50:]) + "\n"
    for split in ("train", "valid", "test"):
        texts[f"wikitext2/{split}.txt"] = (
            f' \n = {split} = \n \n One {split} . Two <unk> , 1 @,@ 000 . three ? " Four . \n'
        )
    # The passage begins in the middle of a line.
    passage = [novels[10][-50:].upper(), "It did n't .", novels[12], novels[30], novels[55]]
    document = f"#begin document (a); part 000\n{columns(passage, 3)}#end document\n"
    texts["coref_litbank/dev.gold_conll"] = document
    texts["coref_litbank/test.gold_conll"] = document.replace("N10X", "other").replace("n12x", "z")
    reviews = [sentence(f"r{i}") for i in range(30)]
    reviews[5:8] = ["I did n't like it , it was bad .", "Short .", sentence("again") + " !"]
    texts["imdb/lm_train.tok.txt.gz"] = "\n".join(reviews) + "\n"
    test = [
        "I didn't like it,<br />it was bad. Short. " + sentence("again"),
        f"{sentence('new', 50)} {reviews[20]}",
    ]
    texts["imdb/test.tsv.gz"] = "".join(f"neg\t{i}.txt\t{text}\n" for i, text in enumerate(test))
    texts["ner_wikigold/test.conll4.txt"] = columns([novels[40], sentence("ner"), "Short ."], 0)
    leaves = " ".join(f"(X {word})" for word in f"-LRB- {novels[41]} none".split())
    texts["constituency_treebank/test.mrg"] = f"( (S {leaves} (-NONE- *)))\n"
    texts["sst5/test.txt"] = f"(3 {leaves.replace('X', '2')})\n"
    pair = {"sentence1": novels[42] + " and more", "sentence2": sentence("snli")}
    texts["snli_cad/original/test.jsonl"] = json.dumps(pair) + "\n"
    texts["squad/xquad.en.json"] = json.dumps(
        {"data": [{"paragraphs": [{"context": novels[43]}, {"context": sentence("squad")}]}]}
    )
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = text.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


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
    data = write_data(tmp_path / "data")
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
    run("make", write_data(tmp_path / "data"), tmp_path / "out", "--reviews")
    text = {p.name: p.read_text("utf-8").splitlines() for p in (tmp_path / "out").iterdir()}
    # Lines 5 to 7 are a review of the test set; one of the test reviews only quotes line 20.
    expected = [sentence(f"r{i}") for i in range(30) if i not in (5, 6, 7)]
    assert [line for line in expected if line in text["train.txt"]] == expected[:-6]
    assert not any("again" in line or "bad" in line for line in text["train.txt"])
    assert text["reviews.valid.txt"] == expected[-6:-3] == text["valid.txt"][-3:]
    assert text["reviews.test.txt"] == expected[-3:]


def test_other_novels(run: Run, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    (data / "novels" / "train-01.txt.gz").unlink()
    with pytest.raises(SystemExit, match="novels: must have the sentence 'You must go back"):
        run("make", data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_overlap(run: Run, tmp_path: Path, capsys: Any) -> None:
    data = write_data(tmp_path / "data")
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
