"""
Make the text of the bundled English model, or of a larger one, and count what texts have in common
with test sets.

    python scripts/pretraining_text.py make DATA_DIR OUTPUT_DIR
    python scripts/pretraining_text.py make DATA_DIR OUTPUT_DIR --reviews
    python scripts/pretraining_text.py overlap DATA_DIR --text NAME FILE... --text NAME FILE...

DATA_DIR has the folders `novels`, `wikitext2`, `coref_litbank` and others, each with the published
files of a corpus or a task. The first command writes `train.txt` (novels and WikiText-2, one
sentence a line, shuffled), `valid.txt`, and a validation and a test text of each part: the last two
of the novels, and WikiText-2's own. `--reviews` adds the reviews of `imdb`.

Coreference is measured on passages of the novels. `make` leaves the passages of its development and
test documents out, by the lines that share 8 successive words with them, and the reviews that are
also in the test set of `imdb`. `overlap` prints for each test set how many of its sentences (or
passages, or reviews) share 8 successive words with each text.

Words are compared as runs of the letters a to z, in lower case, and of digits, in one sequence
across the lines of a document.
"""

import argparse
import json
import random
import re
import string
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Sequence, Tuple

import numpy as np
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.data.lexicon import LINE_END, Lexicon
from allennlp_elmo_plugin.data.text import PathOrPaths, find_files
from allennlp_elmo_plugin.files.output_folder import output_folder
from allennlp_elmo_plugin.files.text_lines import open_lines

N = 8
"""How many successive words count as common text."""

LONGEST_GAP = 20
"""Lines between two that are left out are left out, too, if they are so close."""

# The first sentences of the last two novels, The Tenant of Wildfell Hall and The Secret Agent.
VALIDATION_NOVEL = "You must go back with me to the autumn of 1827 ."
TEST_NOVEL = (
    "Mr Verloc , going out in the morning , left his shop nominally in charge of his "
    "brother-in-law ."
)
N_VALIDATION_LINES = 1500
"""How many lines of each part `valid.txt` has."""
N_HELD_OUT_REVIEW_LINES = 6000
"""How many lines the validation and the test text of the reviews have, from the end."""

SAME_REVIEW = 0.5
"""A review is in a text that has this share of its runs of words."""

SPLITS = ("train", "valid", "test")

_BRACKET = re.compile("-[LR][RCS]B-")
"""How treebanks write brackets."""

_LINES_AT_ONCE = 20_000
_KEPT = (string.ascii_lowercase + string.digits + "\n").encode()
_NORMALIZED = bytes(byte if byte in _KEPT else ord(" ") for byte in range(256))
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


def ngrams(
    lexicon: Lexicon, lines: Sequence[str], across_lines: bool = False
) -> Tuple[np.ndarray, np.ndarray]:
    """
    Return the runs of `N` words as hashes of 64 bits, and the line in which each begins; with
    `across_lines`, also those that end in a later line. Texts to compare share a lexicon.
    """
    parts = [np.zeros(0, dtype=np.int32)]
    for first in range(0, len(lines), _LINES_AT_ONCE):
        text = "\n".join(lines[first : first + _LINES_AT_ONCE]) + "\n"
        # The tokenisers of the corpora: "don't", "don 't" (WikiText) and "do n't".
        text = text.lower().replace("n 't", "n't").replace(" n't", "n't").replace("n't", " n't")
        parts.append(lexicon.number(text.encode().translate(_NORMALIZED)))
    numbers = np.concatenate(parts)
    is_word = numbers != LINE_END
    mixed = numbers[is_word].astype(np.uint64) * _MULTIPLIER
    mixed ^= mixed >> _SHIFT
    line_of_word = np.cumsum(~is_word)[is_word]
    n_runs = max(0, len(mixed) - N + 1)
    hashes = np.zeros(n_runs, dtype=np.uint64)
    for i in range(N):
        hashes += mixed[i : i + n_runs]
        hashes *= _MULTIPLIER
        hashes ^= hashes >> _SHIFT
    first_line = line_of_word[:n_runs]
    if across_lines:
        return hashes, first_line
    is_in_line = first_line == line_of_word[len(line_of_word) - n_runs :]
    return hashes[is_in_line], first_line[is_in_line]


class Overlap:
    """
    What other lines have in common with a text.

    # Parameters

    lines : `Sequence[str]`
        The text.
    across_lines : `bool`, optional (default = `True`)
        Whether its lines are one document.
    """

    def __init__(self, lines: Sequence[str], across_lines: bool = True) -> None:
        self._lexicon = Lexicon()
        hashes = np.unique(ngrams(self._lexicon, lines, across_lines)[0])
        self._hashes = np.append(hashes, np.iinfo(np.uint64).max)

    def shares(self, units: Sequence[str]) -> np.ndarray:
        """
        Return, for each unit (a sentence, a document in one line), the share of its runs of words
        that are in the text.
        """
        hashes, unit = ngrams(self._lexicon, units)
        is_found = self._hashes[np.searchsorted(self._hashes, hashes)] == hashes
        n_runs = np.bincount(unit, minlength=len(units))
        return np.bincount(unit[is_found], minlength=len(units)) / np.maximum(n_runs, 1)


def in_documents(lines: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """
    Return, for each line of a text, whether it shares `N` successive words with a document, or lies
    between two such lines that are `LONGEST_GAP` lines apart at most.
    """
    hits = np.flatnonzero(Overlap(documents, across_lines=False).shares(lines))
    is_in = np.zeros(len(lines), dtype=bool)
    is_in[hits] = True
    for hit, next_hit in zip(hits, hits[1:]):
        if next_hit - hit <= LONGEST_GAP:
            is_in[hit:next_hit] = True
    n_words = sum(len(line.split()) for line, out in zip(lines, is_in) if out)
    print(
        f"left out {is_in.sum():,} of {len(lines):,} lines ({n_words:,} words), of which "
        f"{len(hits):,} share {N} successive words with {len(documents):,} held-out documents"
    )
    return is_in


def read_lines(paths: PathOrPaths) -> List[str]:
    """Return the lines of files, plain or gzip, without the white space around them."""
    lines = []
    for path in find_files(paths):
        with open_lines(path, ConfigurationError) as text:
            lines += [line.sentence for line in text]
    return lines


def read_columns(path: Path, column: int) -> Iterator[List[str]]:
    """
    Yield the sentences of the documents of a file of the CoNLL shared tasks, without brackets.
    """
    document: List[List[str]] = [[]]
    for line in [*read_lines(path), "#end document"]:
        if line.startswith(("#begin document", "#end document", "-DOCSTART-")):
            if any(document):
                yield [" ".join(words) for words in document if words]
            document = [[]]
        elif line:
            word = line.split()[column]
            if not _BRACKET.fullmatch(word):
                document[-1].append(word)
        else:
            document.append([])


def sentences(column: int) -> "Reader":
    return lambda path: [each for document in read_columns(path, column) for each in document]


def passages(column: int) -> "Reader":
    return lambda path: [" ".join(document) for document in read_columns(path, column)]


def read_trees(path: Path) -> List[str]:
    """Return the words of trees, one a line."""
    return [
        " ".join(
            word
            for tag, word in re.findall(r"\(([^\s()]+) ([^\s()]+)\)", line)
            if tag != "-NONE-" and not _BRACKET.fullmatch(word)
        )
        for line in read_lines(path)
    ]


def read_pairs(path: Path) -> List[str]:
    pairs = [json.loads(line) for line in read_lines(path)]
    return [" ".join(pair[key].split()) for pair in pairs for key in ("sentence1", "sentence2")]


def read_contexts(path: Path) -> List[str]:
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    return [
        " ".join(paragraph["context"].split())
        for article in articles
        for paragraph in article["paragraphs"]
    ]


def read_reviews(path: Path) -> List[str]:
    return [line.split("\t")[2].replace("<br />", " ") for line in read_lines(path)]


Reader = Callable[[Path], List[str]]

TEST_SETS: List[Tuple[str, str, Reader]] = [
    ("chunk_conll2000/test.txt", "sentences", sentences(0)),
    ("constituency_treebank/test.mrg", "sentences", read_trees),
    ("coref_litbank/dev.gold_conll", "passages", passages(3)),
    ("coref_litbank/test.gold_conll", "passages", passages(3)),
    ("coref_litbank/test.gold_conll", "sentences", sentences(3)),
    ("imdb/test.tsv.gz", "reviews", read_reviews),
    ("ner_wikigold/test.conll4.txt", "sentences", sentences(0)),
    ("ner_wnut17/test.conll4.txt", "sentences", sentences(0)),
    ("snli_cad/original/test.jsonl", "sentences", read_pairs),
    ("snli_cad/all_combined/test.jsonl", "sentences", read_pairs),
    ("squad/xquad.en.json", "paragraphs", read_contexts),
    ("srl_ewt/test/ewt.test.gold_conll", "sentences", sentences(3)),
    ("sst5/test.txt", "sentences", read_trees),
    ("wikitext2/valid.txt", "paragraphs", read_lines),
    ("wikitext2/test.txt", "paragraphs", read_lines),
]
"""Files of a data folder, what their units are called, and what reads them."""


def print_overlap(data: Path, texts: Dict[str, List[str]]) -> None:
    """Print a table with a row for each test set of the folder and a column for each text."""
    rows, units_of_rows = [["test set", "units"]], []
    for file, what, read in TEST_SETS:
        if (data / file).exists():
            units = [unit for unit in dict.fromkeys(read(data / file)) if unit.strip()]
            rows.append([file, f"{len(units):,} {what}"])
            units_of_rows.append(units)
    if not units_of_rows:
        raise SystemExit(f"{data} has none of the test sets, such as {TEST_SETS[0][0]}")
    for name, files in texts.items():
        overlap = Overlap(read_lines(files))
        rows[0].append(name)
        for row, units in zip(rows[1:], units_of_rows):
            shares = overlap.shares(units)
            n_some, n_whole = np.count_nonzero(shares), np.count_nonzero(shares == 1)
            row.append(f"{n_some:,} ({n_some / len(units):.1%}), {n_whole:,}")
    rows.insert(1, ["---"] * len(rows[0]))
    for row in rows:
        print("|", " | ".join(row), "|")


def wikitext_sentences(path: Path) -> List[str]:
    """
    Return the sentences of a file of WikiText: without its headings, numbers in one word ("1 @,@
    000" is "1,000", "role @-@ playing" is "role-playing").
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
    starts = [0]
    for sentence in (VALIDATION_NOVEL, TEST_NOVEL):
        if lines.count(sentence) != 1:
            raise SystemExit(f"{data / 'novels'}: must have the sentence {sentence!r} once")
        starts.append(lines.index(sentence) - 1)  # the heading, "CHAPTER I"
    documents = []
    for split in ("dev", "test"):
        documents += passages(3)(data / "coref_litbank" / f"{split}.gold_conll")
    is_left_out = in_documents(lines, documents)
    novels = [
        [line for line, out in zip(lines[start:end], is_left_out[start:end]) if line and not out]
        for start, end in zip(starts, [*starts[1:], len(lines)])
    ]
    wikitext = [wikitext_sentences(data / "wikitext2" / f"{split}.txt") for split in SPLITS]
    parts = {"novels": novels, "wiki": wikitext}
    if reviews:
        lines = read_lines(data / "imdb" / "lm_train.tok.txt.gz")
        tested = read_reviews(data / "imdb" / "test.tsv.gz")
        shares = Overlap(lines).shares(tested)
        documents = [tested[i] for i in np.flatnonzero(shares >= SAME_REVIEW)]
        is_left_out = in_documents(lines, documents)
        lines = [line for line, out in zip(lines, is_left_out) if line and not out]
        bounds = [0, -2 * N_HELD_OUT_REVIEW_LINES, -N_HELD_OUT_REVIEW_LINES, None]
        parts["reviews"] = [lines[start:end] for start, end in zip(bounds, bounds[1:])]

    texts = {
        "train.txt": [line for train, _, _ in parts.values() for line in train],
        "valid.txt": [
            line for _, valid, _ in parts.values() for line in valid[:N_VALIDATION_LINES]
        ],
    }
    random.Random(0).shuffle(texts["train.txt"])
    for name, part in parts.items():
        texts[f"{name}.valid.txt"], texts[f"{name}.test.txt"] = part[1:]
    with output_folder(output, list(texts), force=True) as folder:
        for name, lines in texts.items():
            (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
            n_words = sum(len(line.split()) for line in lines)
            print(f"{output / name}: {len(lines):,} lines, {n_words:,} words")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("make", "overlap"):
        command = commands.add_parser(name)
        command.add_argument("data", type=Path, help="folder with the folders of the corpora")
        if name == "make":
            command.add_argument("output", type=Path, help="folder to write to")
            command.add_argument("--reviews", action="store_true", help="also those of imdb")
        else:
            command.add_argument(
                "--text",
                dest="texts",
                action="append",
                nargs="+",
                metavar=("NAME", "FILE"),
                required=True,
                help="a name and files or globs of the text; repeat it for several texts",
            )
    arguments = vars(parser.parse_args())
    try:
        if arguments.pop("command") == "make":
            make(**arguments)
        else:
            texts = {name: files for name, *files in arguments["texts"]}
            print_overlap(arguments["data"], texts)
    except (ConfigurationError, OSError) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
