import gzip
import runpy
import sys


def sentence(name, n=9):
    """Words that no other sentence has."""
    return " ".join(f"{name}x{i}" for i in range(n))


def write_data(folder, held_out_novels):
    """Write a folder as the script reads it, with a few lines in each file."""
    novels = [sentence(f"n{i}") for i in range(100)]
    novels[60] = ""
    novels[70] = novels[80] = "CHAPTER I"
    novels[71], novels[81] = held_out_novels
    # The passage begins in the middle of a line.
    passage = [novels[10][-50:].upper(), "It did n't .", novels[12], novels[30], novels[55]]
    rows = "\n".join(f"- - - {word} -" for line in passage for word in line.split())
    document = f"#begin document (a); part 000\n{rows}\n#end document\n"
    reviews = [sentence(f"r{i}") for i in range(30)]
    reviews[5:8] = ["I did n't like it , it was bad .", "Short .", sentence("again") + " !"]
    test = f"neg\t0.txt\tI didn't like it,<br />it was bad. Short. {sentence('again')}\n"
    texts = {
        "novels/train-00.txt.gz": "\n".join(novels[:50]) + "\n",
        "novels/train-01.txt.gz": "\n".join(novels[50:]) + "\n",
        "coref_litbank/dev.gold_conll": document,
        "coref_litbank/test.gold_conll": document.replace("N10X", "other").replace("n12x", "z"),
        "imdb/lm_train.tok.txt.gz": "\n".join(reviews) + "\n",
        "imdb/test.tsv.gz": f"{test}neg\t1.txt\t{sentence('new', 50)} {reviews[20]}\n",
    }
    for split in ("train", "valid", "test"):
        text = f' \n = {split} = \n \n One {split} . Two <unk> , 1 @,@ 000 . three ? " Four . \n'
        texts[f"wikitext2/{split}.txt"] = text
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def test_texts_have_no_sentences_of_test_sets(tmp_path, repository_root, monkeypatch):
    script = runpy.run_path(str(repository_root / "scripts" / "pretraining_text.py"))
    monkeypatch.setitem(script["main"].__globals__, "N_HELD_OUT_REVIEW_LINES", 3)
    data, out = tmp_path / "data", tmp_path / "out"
    write_data(data, script["HELD_OUT_NOVELS"])
    monkeypatch.setattr(sys, "argv", ["", str(data), str(out), "--reviews"])
    script["main"]()
    texts = {path.name: path.read_text("utf-8").splitlines() for path in out.iterdir()}
    # Lines of the passage, lines between them, and a line that is further on; line 60 is empty.
    left_out = {*range(10, 31), 55, 60}
    novels = [sentence(f"n{i}") for i in range(70) if i not in left_out]
    wikitext = ["One train .", "Two <unk> , 1,000 . three ?", '" Four .']
    # Lines 5 to 7 are a review of the test set; one of the test reviews only quotes line 20.
    reviews = [sentence(f"r{i}") for i in range(30) if i not in (5, 6, 7)]
    train = novels + wikitext + reviews[:-6]
    assert texts["train.txt"] != train and sorted(texts["train.txt"]) == sorted(train)
    assert texts["novels.valid.txt"][0] == "CHAPTER I" and len(texts["novels.valid.txt"]) == 10
    assert len(texts["novels.test.txt"]) == 20
    held_out = texts["novels.valid.txt"] + texts["wiki.valid.txt"] + reviews[-6:-3]
    assert texts["valid.txt"] == held_out and texts["reviews.test.txt"] == reviews[-3:]
    # "n't" is written in the ways of several tokenizers.
    runs = script["runs"]
    expected = runs("he didn't see it -- so he was")
    assert runs("He did n't see it , so he was") == runs("He didn 't see it so he was") == expected
