"""
Make the data of training_config/imdb, and of `allennlp elmo-benchmark`, from the published folder
of film reviews (Maas et al. 2011).

    python scripts/imdb.py aclImdb OUTPUT_DIR

writes `train.jsonl`, `validation.jsonl` (every tenth review of the published training set) and
`test.jsonl`, with `text` (words separated by spaces) and `label`, positive and negative reviews in
turn. It also writes `text.txt` for pretraining an ELMo: the sentences of the training set and of
the reviews without a label, one on each line.
"""

import json
from pathlib import Path

import regex  # which AllenNLP requires

from allennlp_elmo_plugin.exits import run_script
from allennlp_elmo_plugin.files.atomic import output_folder
from allennlp_elmo_plugin.text.lines import open_lines

LABELS = ("neg", "pos")
NAMES = ("train.jsonl", "validation.jsonl", "test.jsonl", "text.txt")

# Unlike re, regex has combining marks in \w (é as two characters, vowel signs of Hindi).
_BREAK = regex.compile(r"(?:<br\s*/?>\s*)+")
_TOKEN = regex.compile(
    r"\w+?(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b|[\w\p{No}]+(?:[.-][\w\p{No}]+)*|\.\.\.|\S"
)
_END = {".", "!", "?", "..."}
_QUOTES = {'"', "'"}
_CLOSING = {*_QUOTES, ")", "]", *_END}


def sentences(text: str) -> list[list[str]]:
    """
    Return the words of a review's sentences. A line break also ends a sentence. A quote after the
    end of a sentence belongs to it, unless a space precedes the quote.
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


def reviews(folder: Path) -> list[str]:
    """Return the reviews of a folder, in the order of their numbers."""
    paths = {int(path.stem.split("_")[0]): path for path in folder.glob("[0-9]*_*.txt")}
    if not paths:
        raise ValueError(f"{folder}: no reviews, named NUMBER_RATING.txt as in aclImdb")
    texts = []
    for _, path in sorted(paths.items()):
        with open_lines(path) as lines:
            texts.append("\n".join(line.sentence for line in lines))
    return texts


def write(source: Path, folder: Path) -> None:
    """Write the files of the published folder."""
    lines: dict[str, list[str]] = {name: [] for name in NAMES}
    for split in ("train", "test"):
        # Positive and negative reviews in turn, so that the first lines have both.
        for n, pair in enumerate(zip(*(reviews(source / split / label) for label in LABELS))):
            name = "validation" if split == "train" and n % 10 == 9 else split
            for label, text in zip(LABELS, pair):
                review = [" ".join(words) for words in sentences(text)]
                row = {"text": " ".join(review), "label": label}
                lines[f"{name}.jsonl"].append(json.dumps(row, ensure_ascii=False))
                if name == "train":
                    lines["text.txt"] += review
    for text in reviews(source / "train" / "unsup"):
        lines["text.txt"] += [" ".join(words) for words in sentences(text)]
    for name, found in lines.items():
        (folder / name).write_text("".join(f"{line}\n" for line in found), encoding="utf-8")


def main(source: Path, output: Path) -> None:
    with output_folder(output, NAMES, force=True) as folder:
        write(source, folder)


if __name__ == "__main__":
    run_script(main, __doc__)
