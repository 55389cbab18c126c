"""A folder as `scripts/pretraining_text.py` reads it, with a few lines in each file."""

import gzip
from pathlib import Path
from typing import Dict


def sentence(name: str, n: int = 9) -> str:
    """Words that no other sentence has."""
    return " ".join(f"{name}x{i}" for i in range(n))


def write_pretraining_data(folder: Path) -> Path:
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
    rows = "\n".join(f"- - - {word} -" for line in passage for word in line.split())
    document = f"#begin document (a); part 000\n{rows}\n#end document\n"
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
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = text.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder
