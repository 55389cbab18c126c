"""
The vocabulary of a language model: bilm-tf's file, one word a line, whose ids are line numbers from
0; and the folder of AllenNLP's `Vocabulary`, read and written without AllenNLP.
"""

import os
import re
import reprlib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from allennlp_elmo_plugin.bilm.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD
from allennlp_elmo_plugin.files.atomic import atomic_file
from allennlp_elmo_plugin.files.hdf5_file import allowance
from allennlp_elmo_plugin.text.lines import TextLines, without_mark

UNKNOWN_WORD = "<UNK>"
SPECIAL_WORDS = (BEGIN_SENTENCE_WORD, END_SENTENCE_WORD, UNKNOWN_WORD)
IGNORED_WORD = "!!!MAXTERMID"  # a line that bilm-tf skips

VOCABULARY_FOLDER = "vocabulary"
"""The name of AllenNLP's folder in the output of a command."""

LM_NAMESPACE = "lm_tokens"
NON_PADDED_FILE = "non_padded_namespaces.txt"
HINT = (
    "make it with `allennlp-elmo-plugin elmo-vocab` and set in the configuration: "
    '"vocabulary": {"type": "from_files", "directory": OUTPUT}'
)
IS_PADDED = (
    f"the namespace {LM_NAMESPACE} is padded; its ids would not be those of a language model: add "
    f"a line {LM_NAMESPACE} to {NON_PADDED_FILE} in its folder, or {HINT}"
)

_WORD_AND_COUNT = re.compile(r"(\S+)\s+\d+", re.ASCII)


def read_vocabulary_file(path: str | os.PathLike[str], source: str = "") -> list[str]:
    """
    Return the words in a vocabulary file of bilm-tf, in the order of their ids, without the counts
    that some published vocabularies have. Errors call the file `source`.
    """
    source = source or os.fspath(path)
    lines: list[str] = []
    with open(path, "rb") as file:
        text = TextLines(file, source)
        limit = allowance(os.path.getsize(path))
        for line in iter(text.read_line, b""):
            if text.offset > limit:
                raise ValueError(
                    f"{source}: unpacks to more than {limit:,} bytes; if you trust it, gunzip it"
                )
            lines.append(text.decode((without_mark(line) if text.number == 1 else line).strip()))
    words = _without_counts(lines)
    missing = [word for word in SPECIAL_WORDS if word not in words]
    if missing:
        raise ValueError(
            f"{source}: the special words {', '.join(missing)} are missing; a vocabulary of a "
            f"language model starts with the lines {', '.join(SPECIAL_WORDS)}. "
            "`allennlp-elmo-plugin elmo-vocab` makes one of a text"
        )
    numbers: dict[str, int] = {}
    for number, word in enumerate(words, 1):
        if word == IGNORED_WORD:
            continue
        if not word:
            raise ValueError(f"{source}, line {number}: is empty; remove this line")
        if word in numbers:
            raise ValueError(
                f"{source}, line {number}: {reprlib.repr(word)} is there twice, first in line "
                f"{numbers[word]}; remove one of the two"
            )
        numbers[word] = number
    return list(numbers)


def _without_counts(lines: list[str]) -> list[str]:
    # A word may contain white space ("10 000"), so a number is a count only if all lines have one.
    matches = [_WORD_AND_COUNT.fullmatch(line) for line in lines]
    uncounted = (*SPECIAL_WORDS, IGNORED_WORD)
    if all(match or line in uncounted for match, line in zip(matches, lines)):
        return [match[1] if match else line for match, line in zip(matches, lines)]
    return lines


def write_vocabulary_file(path: str | os.PathLike[str], words: Iterable[str]) -> None:
    """Write `words` atomically, one a line."""
    with atomic_file(path) as staged, open(staged, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{word}\n" for word in words)


def read_vocabulary_folder(directory: str | os.PathLike[str], source: str) -> list[str]:
    """
    Return the language model's words in AllenNLP's folder, as `read_vocabulary_file` does. Errors
    call the folder `source`.
    """
    path = Path(directory, f"{LM_NAMESPACE}.txt")
    padding_path = Path(directory, NON_PADDED_FILE)
    if not path.is_file() or not padding_path.is_file():
        raise ValueError(f"{source}: has no {path.name} with {padding_path.name}; {HINT}")
    patterns = padding_path.read_text(encoding="utf-8", errors="replace").split()
    if not any(fnmatchcase(LM_NAMESPACE, pattern) for pattern in patterns):
        raise ValueError(f"{source}: {IS_PADDED}")
    return read_vocabulary_file(path, f"{source}/{path.name}")


def write_vocabulary_folder(directory: str | os.PathLike[str], words: Iterable[str]) -> None:
    """Write a folder for AllenNLP's `Vocabulary.from_files`; the ids are the indices in `words`."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    # As in AllenNLP, namespaces of labels have no padding either.
    write_vocabulary_file(Path(directory, NON_PADDED_FILE), ("*tags", "*labels", LM_NAMESPACE))
    write_vocabulary_file(Path(directory, f"{LM_NAMESPACE}.txt"), words)
