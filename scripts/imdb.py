"""
Make the data of training_config/imdb from the published folder of film reviews (Maas et al. 2011).

    python scripts/imdb.py aclImdb OUTPUT_DIR

writes `train.jsonl`, `validation.jsonl` (every tenth review of the published training set) and
`test.jsonl`, with `text` (words separated by spaces) and `label`; and `text.txt`, one sentence a
line, of the training set and the reviews without a label, to pretrain an ELMo on.
"""

import argparse
import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Iterator, List, Tuple

from allennlp_elmo_plugin.files.output_folder import output_folder

LABELS = ("neg", "pos")
NAMES = ("train.jsonl", "validation.jsonl", "test.jsonl", "text.txt")

_BREAK = re.compile(r"(?:<br\s*/?>\s*)+")
_TOKEN = re.compile(r"\w+?(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b|\w+(?:[.-]\w+)*|\.\.\.|\S")
_END = {".", "!", "?", "..."}
_CLOSING = {'"', "'", ")", "]", *_END}


def sentences(text: str) -> List[List[str]]:
    """Return the words of a review's sentences. A line break ends a sentence, too."""
    found = []
    for block in _BREAK.split(text):
        tokens = _TOKEN.findall(block)
        start = 0
        for i, token in enumerate(tokens, start=1):
            ended = token in _END or (token in _CLOSING and i > 1 and tokens[i - 2] in _END)
            if i == len(tokens) or (ended and tokens[i] not in _CLOSING):
                found.append(tokens[start:i])
                start = i
    return [sentence for sentence in found if sentence]


def reviews(folder: Path) -> Iterator[Tuple[Path, List[List[str]]]]:
    """Yield the reviews of a folder, in the order of their numbers."""
    paths = sorted(folder.glob("*.txt"), key=lambda path: int(path.stem.split("_")[0]))
    if not paths:
        raise SystemExit(f"{folder}: no reviews (*.txt); is it of the published folder aclImdb?")
    for path in paths:
        yield path, sentences(path.read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("source", type=Path, help="the folder aclImdb")
    parser.add_argument("output", type=Path, help="folder to write to")
    arguments = parser.parse_args()
    source, output = arguments.source, arguments.output
    with output_folder(output, NAMES, force=True) as folder, ExitStack() as stack:
        files = {
            name: stack.enter_context((folder / name).open("w", encoding="utf-8")) for name in NAMES
        }
        for split in ("train", "test"):
            for label in LABELS:
                for n, (_, review) in enumerate(reviews(source / split / label)):
                    name = "validation" if split == "train" and n % 10 == 9 else split
                    text = " ".join(word for sentence in review for word in sentence)
                    files[f"{name}.jsonl"].write(json.dumps({"text": text, "label": label}) + "\n")
                    if name == "train":
                        _write_text(files["text.txt"], review)
        for _, review in reviews(source / "train" / "unsup"):
            _write_text(files["text.txt"], review)


def _write_text(file, review: List[List[str]]) -> None:
    file.writelines(" ".join(sentence) + "\n" for sentence in review)


if __name__ == "__main__":
    main()
