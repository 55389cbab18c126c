"""Sentences with labels of their words, from files of columns."""

import os
import random
import re
from typing import List, NamedTuple, Sequence, Union

from allennlp_elmo_plugin.data.text import find_files
from allennlp_elmo_plugin.files.text_lines import open_lines, without_mark

NO_LABEL = ("-", "_")
"""What stands in the column of labels where a word has none."""

_START_OF_DOCUMENT = "-DOCSTART-"  # of CoNLL-2003

_COLUMNS_OF_CONLL_U = 10
# 2-3 is a token of several words, which follow; 3.1 is a word that was left out.
_NO_WORD_OF_CONLL_U = re.compile(r"\d+[-.]\d+")


class Example(NamedTuple):
    """
    A word with a label: its position in the sentence, its label, and its key, which is what the
    label without the context depends on: the word itself, or its lemma.
    """

    position: int
    key: str
    label: str


class LabelledSentence(NamedTuple):
    """The words of a sentence, and those of them that have a label."""

    words: List[str]
    examples: List[Example]


def read_sentences(
    path: Union[str, "os.PathLike[str]"], columns: Sequence[int]
) -> List[LabelledSentence]:
    """
    Read sentences from files with a word a line and a blank line after each sentence. Columns are
    separated by tabs if the line has any, otherwise by white space.

    Lines of comments (if words are not in the first column: `#` may be a word) and `-DOCSTART-` are
    skipped, also the tokens of CoNLL-U that are not words.

    # Parameters

    path : `str`
        A file, a folder (all files in it) or a glob.
    columns : `Sequence[int]`
        The columns of the word, its key and its label, numbered from 1.

    # Raises

    `ValueError`
        A line has too few columns, which the error names, or there is no label in any file.
    """
    word_column, key_column, label_column = (column - 1 for column in columns)
    sentences: List[LabelledSentence] = []
    for file in find_files(path):
        sentence = LabelledSentence([], [])
        with open_lines(file) as text:
            for line in iter(text.read_line, b""):
                line = without_mark(line)
                parts = line.split(b"\t") if b"\t" in line.strip() else line.split()
                cells = [text.decode(part.strip()) for part in parts]
                is_comment = word_column > 0 and line.startswith(b"#")
                if not any(cells) or is_comment or cells[0] == _START_OF_DOCUMENT:
                    if sentence.words:
                        sentences.append(sentence)
                        sentence = LabelledSentence([], [])
                    continue
                if len(cells) < max(columns):
                    raise ValueError(
                        f"{file}, line {text.number}: {len(cells)} columns, but --columns names "
                        f"column {max(columns)}: {' '.join(cells)[:80]!r}"
                    )
                if len(cells) == _COLUMNS_OF_CONLL_U and _NO_WORD_OF_CONLL_U.fullmatch(cells[0]):
                    continue
                word, key, label = cells[word_column], cells[key_column], cells[label_column]
                if not (word and key and label):
                    raise ValueError(
                        f"{file}, line {text.number}: a column that --columns names is empty: "
                        f"{' '.join(cells)[:80]!r}"
                    )
                if label not in NO_LABEL:
                    sentence.examples.append(Example(len(sentence.words), key, label))
                sentence.words.append(word)
        if sentence.words:
            sentences.append(sentence)
    if not any(sentence.examples for sentence in sentences):
        raise ValueError(
            f"{path}: no word has a label in column {label_column + 1}; --columns says which "
            "columns to read"
        )
    return sentences


def choose(sentences: List[LabelledSentence], n_examples: int, seed: int) -> List[LabelledSentence]:
    """
    Return the sentences with examples: all of them, or if they have more than `n_examples`, as many
    as have those, drawn at random.
    """
    sentences = [sentence for sentence in sentences if sentence.examples]
    if sum(len(sentence.examples) for sentence in sentences) <= n_examples:
        return sentences
    chosen = []
    random.Random(seed).shuffle(sentences)
    for sentence in sentences:
        if n_examples == 0:
            break
        examples = sentence.examples[:n_examples]
        chosen.append(LabelledSentence(sentence.words, examples))
        n_examples -= len(examples)
    return chosen
