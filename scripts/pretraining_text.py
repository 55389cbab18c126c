"""
Make the text of `tiny`, the model in the package, or of a larger English model.

    python scripts/pretraining_text.py DATA_DIR OUTPUT_DIR [--reviews]

DATA_DIR has the folders `novels`, `wikitext2`, `coref_litbank` and `imdb`, each with the published
files. The command writes `train.txt` (novels and WikiText-2, one sentence per line, shuffled),
`valid.txt`, and a validation and a test text of each part: the last two of the novels, and
WikiText-2's own. `--reviews` adds the reviews of `imdb`.

Two tasks of the results use the same novels and reviews. So the texts leave out lines that share 8
successive words with the coreference documents for development and test, and reviews that are in
the test set of `imdb`. Words are compared as runs of letters (a to z, in lower case) and digits.
"""

import argparse
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from allennlp_elmo_plugin.exits import run_script
from allennlp_elmo_plugin.files.atomic import output_folder
from allennlp_elmo_plugin.text.corpus import PathOrPaths, find_files
from allennlp_elmo_plugin.text.lines import open_lines

N = 8  # successive words that count as common text
LONGEST_GAP = 20  # Lines between two lines that are left out are left out, too, up to so many.
N_VALIDATION_LINES = 1500  # of each part in valid.txt
N_HELD_OUT_REVIEW_LINES = 6000  # of the validation and of the test text of the reviews
SAME_REVIEW = 0.5  # A text contains a review if it has this share of the review's runs of words.

# The first sentences of the last two novels, The Tenant of Wildfell Hall and The Secret Agent.
HELD_OUT_NOVELS = (
    "You must go back with me to the autumn of 1827 .",
    "Mr Verloc , going out in the morning , left his shop nominally in charge of his "
    "brother-in-law .",
)


def runs(text: str) -> set[int]:
    """Return the hashes of the runs of `N` words."""
    # The tokenisers of the corpora: "don't", "don 't" (WikiText) and "do n't".
    text = text.lower().replace("n 't", "n't").replace(" n't", "n't").replace("n't", " n't")
    words = re.findall("[a-z0-9]+", text)
    return {hash(tuple(words[i : i + N])) for i in range(len(words) - N + 1)}


def without(lines: Sequence[str], documents: Sequence[str]) -> list[str]:
    """
    Return the lines of a text. Those that share `N` successive words with a document become empty,
    and so do lines between two of them that are at most `LONGEST_GAP` lines apart.
    """
    held_out = set().union(*map(runs, documents))
    hits = [i for i, line in enumerate(lines) if not held_out.isdisjoint(runs(line))]
    kept = list(lines)
    for hit, next_hit in zip(hits, [*hits[1:], len(lines) + LONGEST_GAP]):
        for i in range(hit, next_hit if next_hit - hit <= LONGEST_GAP else hit + 1):
            kept[i] = ""
    print(f"{len(hits):,} of {len(lines):,} lines share {N} successive words with held-out text")
    return kept


def read_lines(paths: PathOrPaths) -> list[str]:
    """Return the lines of files, plain or gzip, without the white space around them."""
    lines = []
    for path in find_files(paths):
        with open_lines(path) as text:
            lines += [line.sentence for line in text]
    return lines


def passages(path: Path) -> Iterator[str]:
    """Yield each document of a CoNLL-2012 file as one line, without brackets."""
    for document in "\n".join(read_lines(path)).split("#end document"):
        rows = [line.split() for line in document.splitlines() if not line.startswith("#")]
        words = [row[3] for row in rows if row and not re.fullmatch("-[LR][RCS]B-", row[3])]
        if words:
            yield " ".join(words)


def wikitext_sentences(path: Path) -> list[str]:
    """
    Return the sentences of a WikiText file without headings and with its divided words joined ("1
    @,@ 000" is "1,000", "role @-@ playing" is "role-playing").
    """
    found = []
    for line in read_lines(path):
        if line and not line.startswith("= "):
            line = re.sub(r" @([-,.])@ ", r"\1", line)
            found += re.split(r"(?<= [.?!]) (?=[\"'(]? ?[A-Z<])", line)
    return found


def make(data: Path, output: Path, reviews: bool) -> None:
    """Write the texts to a folder."""
    lines = read_lines(data / "novels" / "train-*.txt.gz")
    # Two novels are held out, from their "CHAPTER I" on.
    validation, test = (lines.index(sentence) - 1 for sentence in HELD_OUT_NOVELS)
    litbank = [data / "coref_litbank" / f"{split}.gold_conll" for split in ("dev", "test")]
    lines = without(lines, [passage for path in litbank for passage in passages(path)])
    wikitext = [data / "wikitext2" / f"{split}.txt" for split in ("train", "valid", "test")]
    parts = {
        "novels": [lines[:validation], lines[validation:test], lines[test:]],
        "wiki": [wikitext_sentences(path) for path in wikitext],
    }
    if reviews:
        kept = list(filter(None, reviews_text(data / "imdb")))
        n = N_HELD_OUT_REVIEW_LINES
        parts["reviews"] = [kept[: -2 * n], kept[-2 * n : -n], kept[-n:]]
    parts = {name: [list(filter(None, text)) for text in part] for name, part in parts.items()}
    train = [line for part in parts.values() for line in part[0]]
    random.Random(0).shuffle(train)
    valid = [line for part in parts.values() for line in part[1][:N_VALIDATION_LINES]]
    texts = {"train.txt": train, "valid.txt": valid}
    for name, part in parts.items():
        texts[f"{name}.valid.txt"], texts[f"{name}.test.txt"] = part[1:]
    with output_folder(output, list(texts), force=True) as folder:
        for name, lines in texts.items():
            (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
            n_words = sum(len(line.split()) for line in lines)
            print(f"{output / name}: {len(lines):,} lines, {n_words:,} words")


def reviews_text(folder: Path) -> list[str]:
    """Return the lines of the reviews. Those of reviews in the test set become empty."""
    lines = read_lines(folder / "lm_train.tok.txt.gz")
    rows = [line.split("\t") for line in read_lines(folder / "test.tsv.gz")]
    tested = {row[2].replace("<br />", " ") for row in rows}
    of_reviews = {review: runs(review) for review in tested}
    found = set().union(*of_reviews.values()) & runs(" ".join(lines))
    documents = [
        review
        for review, found_here in of_reviews.items()
        if found_here and len(found_here & found) >= SAME_REVIEW * len(found_here)
    ]
    return without(lines, documents)


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--reviews", action="store_true")
    arguments = parser.parse_args()
    make(arguments.data, arguments.output, arguments.reviews)


if __name__ == "__main__":
    run_script(main)
