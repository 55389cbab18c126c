"""
Make the data of training_config/imdb, and of `allennlp elmo-benchmark`, from the published folder
of film reviews (Maas et al. 2011).

    python scripts/imdb.py aclImdb OUTPUT_DIR

writes `train.jsonl`, `validation.jsonl` (every tenth review of the published training set) and
`test.jsonl`, with `text` (words separated by spaces) and `label`, positive and negative reviews in
turn; and `text.txt`, one sentence a line, of the training set and the reviews without a label, to
pretrain an ELMo on.
"""

import argparse
import json
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Iterable, Iterator, List, Tuple

import regex  # AllenNLP needs it, too

from allennlp_elmo_plugin.files.text_lines import open_lines
from allennlp_elmo_plugin.files.whole import output_folder

LABELS = ("neg", "pos")
NAMES = ("train.jsonl", "validation.jsonl", "test.jsonl", "text.txt")

# In regex, unlike in re, \w has combining marks (é as two characters, vowel signs of Hindi).
_BREAK = regex.compile(r"(?:<br\s*/?>\s*)+")
_TOKEN = regex.compile(
    r"\w+?(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b|[\w\p{No}]+(?:[.-][\w\p{No}]+)*|\.\.\.|\S"
)
_END = {".", "!", "?", "..."}
_QUOTES = {'"', "'"}
_CLOSING = {*_QUOTES, ")", "]", *_END}


def sentences(text: str) -> List[List[str]]:
    """
    Return the words of a review's sentences. A line break ends a sentence, too. A quote after the
    end of a sentence belongs to it, unless there is a space before the quote.
    """
    found = []
    for block in _BREAK.split(text):
        matches = list(_TOKEN.finditer(block))
        tokens = [match.group() for match in matches]
        closes = [
            token in _CLOSING and not (token in _QUOTES and block[match.start() - 1].isspace())
            for token, match in zip(tokens, matches)
        ]
        start = 0
        for i, token in enumerate(tokens, start=1):
            ended = token in _END or (closes[i - 1] and i > 1 and tokens[i - 2] in _END)
            if i == len(tokens) or (ended and not closes[i]):
                found.append(tokens[start:i])
                start = i
    return [sentence for sentence in found if sentence]


def reviews(folder: Path) -> Iterator[str]:
    """Yield the reviews of a folder, in the order of their numbers."""
    paths = [path for path in folder.glob("*.txt") if path.stem.split("_")[0].isdecimal()]
    if not paths:
        raise SystemExit(
            f"{folder}: no reviews (NUMBER_RATING.txt); is it of the published folder aclImdb?"
        )
    for path in sorted(paths, key=lambda path: int(path.stem.split("_")[0])):
        with open_lines(path, SystemExit) as lines:
            yield "\n".join(line.sentence for line in lines)


def splits(source: Path) -> Iterator[Tuple[str, str, str]]:
    """Yield the split, the label and the text of each review of the published folder."""
    for split in ("train", "test"):
        pairs = zip_longest(*(reviews(source / split / label) for label in LABELS))
        for n, pair in enumerate(pairs):
            for label, text in zip(LABELS, pair):
                if text is not None:
                    yield "validation" if split == "train" and n % 10 == 9 else split, label, text
    for text in reviews(source / "train" / "unsup"):
        yield "unsup", "", text


def write(reviews_of_splits: Iterable[Tuple[str, str, str]], folder: Path) -> None:
    with ExitStack() as stack:
        files = {
            name: stack.enter_context((folder / name).open("w", encoding="utf-8")) for name in NAMES
        }
        for split, label, text in reviews_of_splits:
            review = sentences(text)
            if label:
                words = " ".join(word for sentence in review for word in sentence)
                line = json.dumps({"text": words, "label": label}, ensure_ascii=False)
                files[f"{split}.jsonl"].write(line + "\n")
            if split in ("train", "unsup"):
                files["text.txt"].writelines(" ".join(sentence) + "\n" for sentence in review)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("source", type=Path, help="the folder aclImdb")
    parser.add_argument("output", type=Path, help="folder to write to")
    arguments = parser.parse_args()
    with output_folder(arguments.output, NAMES, force=True) as folder:
        write(splits(arguments.source), folder)


if __name__ == "__main__":
    main()
