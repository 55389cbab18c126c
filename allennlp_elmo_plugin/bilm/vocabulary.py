"""
The vocabulary file of bilm-tf: one word a line, ids are line numbers from 0.
"""

import codecs
import os
import reprlib
from typing import Dict, List, Sequence, Union

from allennlp_elmo_plugin.bilm.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD
from allennlp_elmo_plugin.files.whole_file import whole_file

UNKNOWN_WORD = "<UNK>"
SPECIAL_WORDS = (BEGIN_SENTENCE_WORD, END_SENTENCE_WORD, UNKNOWN_WORD)
IGNORED_WORD = "!!!MAXTERMID"
"""A line that bilm-tf skips."""

# A file without line feeds would be one word.
_MAX_LINE_BYTES = 2**16


def read_vocabulary_file(path: Union[str, "os.PathLike[str]"], source: str = "") -> List[str]:
    """
    Read a vocabulary file of bilm-tf. Only a line feed ends a line, and only ASCII white space
    around a word is removed, so that words with other spaces in them keep their ids.

    # Parameters

    path : `str` or `os.PathLike`
    source : `str`, optional (default = `path`)
        What errors call the file.

    # Returns

    `List[str]`
        The words; the id of each is its index. A line `!!!MAXTERMID` is skipped.

    # Raises

    `ValueError`
        Names the file and the line: undecodable bytes, an empty line, one of more than 64 KB, a
        word that is there twice, or `<S>`, `</S>`, `<UNK>` missing.
    """
    source = source or os.fspath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"{source}: not a file; give a vocabulary file, one word a line")
    words: Dict[str, int] = {}
    with open(path, "rb") as file:
        lines = iter(lambda: file.readline(_MAX_LINE_BYTES + 1), b"")
        for number, line in enumerate(lines, start=1):
            if len(line) > _MAX_LINE_BYTES:
                raise ValueError(
                    f"{source}, line {number}: has more than {_MAX_LINE_BYTES:,} bytes; a "
                    "vocabulary has one word a line"
                )
            if number == 1 and line.startswith(codecs.BOM_UTF8):
                line = line[len(codecs.BOM_UTF8) :]
            try:
                word = line.strip().decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{source}, line {number}: not UTF-8 ({error}); convert the file"
                ) from None
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


def write_vocabulary_file(path: Union[str, "os.PathLike[str]"], words: Sequence[str]) -> None:
    """
    Writes `words` one a line, whole or not at all.
    """
    with (
        whole_file(path) as staged,
        open(staged, "w", encoding="utf-8", newline="\n") as file,
    ):
        file.writelines(f"{word}\n" for word in words)
