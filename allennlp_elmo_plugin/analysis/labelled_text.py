"""Sentences with labels of their words, from files of columns."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from allennlp_elmo_plugin.text.lines import open_lines, without_mark

# In CoNLL-U: a token of several words, which follow, or an omitted word.
_NO_WORD_OF_CONLL_U = re.compile(r"\d+[-.]\d+")


class Example(NamedTuple):
    """A label of a word: its position, its key (the word itself, or its lemma) and the label."""

    position: int
    key: str
    label: str


class LabelledSentence(NamedTuple):
    """The words of a sentence, and those of them that have a label."""

    words: list[str]
    examples: list[Example]


def read_sentences(files: Sequence[Path], columns: Sequence[int]) -> list[LabelledSentence]:
    """
    Read the sentences that have labels from files with a word a line and a blank line after each
    sentence. Tabs separate columns, or white space if the line has no tabs. `columns` are those of
    the word, its key and its label, from 1. Comments are skipped unless column 1 has the words.
    """
    sentences: list[LabelledSentence] = []
    for file in files:
        sentences.append(LabelledSentence([], []))
        with open_lines(file) as lines:
            for line in map(without_mark, iter(lines.read_line, b"")):
                parts = line.split(b"\t") if b"\t" in line.strip() else line.split()
                cells = [lines.decode(part.strip()) for part in parts]
                is_comment = columns[0] > 1 and line.startswith(b"#")
                # CoNLL-2003 starts a document with -DOCSTART-.
                if not any(cells) or is_comment or cells[0] == "-DOCSTART-":
                    sentences.append(LabelledSentence([], []))
                    continue
                if len(cells) == 10 and _NO_WORD_OF_CONLL_U.fullmatch(cells[0]):
                    continue
                chosen = [cells[column - 1] for column in columns if column <= len(cells)]
                if len(chosen) < len(columns) or not all(chosen):
                    where = f"{file}, line {lines.number}"
                    raise ValueError(f"{where}: lacks column {max(columns)} or others of --columns")
                word, key, label = chosen
                words, examples = sentences[-1]
                if label not in ("-", "_"):
                    examples.append(Example(len(words), key, label))
                words.append(word)
    sentences = [sentence for sentence in sentences if sentence.examples]
    if not sentences:
        raise ValueError(f"{files[0]}: no word has a label in column {columns[-1]}; see --columns")
    return sentences


def choose(sentences: list[LabelledSentence], n_examples: int, seed: int) -> list[LabelledSentence]:
    """Return the sentences, or if they have more than `n_examples`, a random sample with these."""
    if sum(len(sentence.examples) for sentence in sentences) > n_examples:
        sentences = [*sentences]
        random.Random(seed).shuffle(sentences)
    chosen = []
    for words, examples in sentences:
        if n_examples > 0:
            chosen.append(LabelledSentence(words, examples[:n_examples]))
            n_examples -= len(examples)
    return chosen
