"""
The vocabulary file of bilm-tf: one word a line, ids are line numbers from 0.
"""

import os
import reprlib
from typing import Dict, Iterable, List, Union

from allennlp_elmo_plugin.bilm.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD
from allennlp_elmo_plugin.files.hdf5_file import allowance
from allennlp_elmo_plugin.files.text_lines import TextLines, without_mark
from allennlp_elmo_plugin.files.whole_file import whole_file

UNKNOWN_WORD = "<UNK>"
SPECIAL_WORDS = (BEGIN_SENTENCE_WORD, END_SENTENCE_WORD, UNKNOWN_WORD)
IGNORED_WORD = "!!!MAXTERMID"
"""A line that bilm-tf skips."""


def read_vocabulary_file(path: Union[str, "os.PathLike[str]"], source: str = "") -> List[str]:
    """
    Return the words in a vocabulary file of bilm-tf, in the order of their ids. The file is read by
    the rule of `files/text_lines.py`, with one exception: after the first line, a byte order mark
    is part of the word. A line `!!!MAXTERMID` is skipped, and so is a count after a word, which
    some published vocabularies have; no word contains white space. Errors call the file `source`.

    # Raises

    `FileNotFoundError`, or `ValueError`
        A line is empty, a word is there twice, or `<S>`, `</S>` or `<UNK>` is missing.
    """
    source = source or os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{source}: there is no such vocabulary file")
    if not os.path.isfile(path):
        raise ValueError(f"{source}: not a file; give a vocabulary file, one word a line")
    words: Dict[str, int] = {}
    with open(path, "rb") as file:
        text = TextLines(file, source)
        limit = allowance(os.path.getsize(path))
        for line in iter(text.read_line, b""):
            number = text.number
            if text.offset > limit:
                raise ValueError(
                    f"{source}: unpacks to more than {limit:,} bytes; if you trust it, "
                    "unpack it with gunzip"
                )
            line = (without_mark(line) if number == 1 else line).strip()
            parts = line.split()
            has_count = len(parts) == 2 and parts[1].isdigit()
            word = text.decode(parts[0] if has_count else line)
            if word == IGNORED_WORD:
                continue
            if not word:
                raise ValueError(f"{source}, line {number}: is empty; remove it (one word a line)")
            if word in words:
                raise ValueError(
                    f"{source}, line {number}: {reprlib.repr(word)} is there twice, first in line "
                    f"{words[word]}; remove one of the two"
                )
            words[word] = number
    missing = [word for word in SPECIAL_WORDS if word not in words]
    if missing:
        raise ValueError(
            f"{source}: the special words {', '.join(missing)} are missing; a vocabulary of a "
            f"language model starts with the lines {', '.join(SPECIAL_WORDS)}"
        )
    return list(words)


def write_vocabulary_file(path: Union[str, "os.PathLike[str]"], words: Iterable[str]) -> None:
    """Write `words` one a line, whole or not at all."""
    with (
        whole_file(path) as staged,
        open(staged, "w", encoding="utf-8", newline="\n") as file,
    ):
        file.writelines(f"{word}\n" for word in words)
