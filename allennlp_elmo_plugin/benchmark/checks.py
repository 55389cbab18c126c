"""Checks of the data of tasks before anything is trained, which name file and line."""

import codecs
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Callable, Optional

from allennlp.common.checks import ConfigurationError
from nltk import Tree

Check = Callable[[str], Optional[str]]
"""Says what is wrong with a line, or nothing."""


def _check_lines(
    path: Path, check: Check, blank: Optional[Callable[[], Optional[str]]] = None
) -> None:
    """`blank` says the same at a blank line and at the end."""
    if path.is_dir():
        files = sorted(path.rglob("*.gold_conll"))
        if not files:
            raise ConfigurationError(f"{path}: a folder without *.gold_conll")
        for file in files:
            _check_lines(file, check, blank)
        return
    empty = True
    number = 0
    with path.open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            if number == 1 and raw.startswith(codecs.BOM_UTF8):
                raise ConfigurationError(
                    f"{path}, line 1: it begins with a byte order mark; save it without"
                )
            try:
                line = raw.decode("utf-8").strip()
            except UnicodeDecodeError as error:
                raise ConfigurationError(f"{path}, line {number}: not UTF-8 ({error})") from error
            problem = check(line) if line else blank and blank()
            if problem:
                found = f": {line[:80]!r}" if line else ""
                raise ConfigurationError(f"{path}, line {number}: {problem}{found}")
            empty = empty and not line
    problem = blank and blank()
    if problem:
        raise ConfigurationError(f"{path}, line {number}: {problem}")
    if empty:
        raise ConfigurationError(f"{path}: there is nothing in it")


def check_columns(n_columns: int, what: str) -> Callable[[Path], None]:
    def check(line: str) -> Optional[str]:
        columns = line.split()
        if len(columns) != n_columns:
            return f"{len(columns)} columns, where there must be {n_columns} ({what})"
        tag = columns[-1]
        if tag != "O" and not (tag[:2] in ("B-", "I-") and len(tag) > 2):
            return f"the tag is {tag!r}, where O, B-TYPE or I-TYPE must be"
        return None

    return lambda path: _check_lines(path, check)


class _Brackets:
    """The brackets of the last columns of a sentence of CoNLL-2012, from the twelfth on."""

    def __init__(self) -> None:
        self.open: Counter = Counter()

    def check(self, line: str) -> Optional[str]:
        if line.startswith("#"):
            return self.at_end()
        columns = line.split()
        if len(columns) < 12:
            return f"{len(columns)} columns, where CoNLL-2012 has 12 or more"
        for number, column in enumerate(columns[11:-1], start=12):
            self.open[number] += column.count("(") - column.count(")")
            if self.open[number] < 0:
                return f"a bracket in column {number} closes what is not open"
        # Mentions: "(3", "3)", "(3)" with "|" between them
        for mention in columns[-1].split("|") if columns[-1] != "-" else []:
            cluster = mention.strip("()")
            if not cluster.isdigit() or mention == cluster:
                return f"the last column is {columns[-1]!r}, where '-' or mentions must be"
            self.open[cluster] += mention.count("(") - mention.count(")")
            if self.open[cluster] < 0:
                return f"mention {cluster} ends, but has not begun"
        return None

    def at_end(self) -> Optional[str]:
        still = ", ".join(str(key) for key, count in self.open.items() if count)
        self.open.clear()
        return (
            f"the sentence ends with open brackets (column or mention {still})" if still else None
        )


def _check_conll_2012(path: Path) -> None:
    brackets = _Brackets()
    _check_lines(path, brackets.check, brackets.at_end)


def check_srl(path: Path) -> None:
    if not path.is_dir():
        raise ConfigurationError(f"{path}: AllenNLP reads a folder of *.gold_conll, not a file")
    if shutil.which("perl") is None:
        raise ConfigurationError("The score of SRL is that of srl-eval.pl: it needs perl")
    _check_conll_2012(path)


def check_coreference(path: Path) -> None:
    if path.is_dir():
        raise ConfigurationError(f"{path}: AllenNLP reads one file here, not a folder")
    _check_conll_2012(path)
    text = path.read_text(encoding="utf-8")
    n_begins, n_ends = (text.count(f"#{what} document") for what in ("begin", "end"))
    if not n_begins == n_ends > 0:
        raise ConfigurationError(
            f"{path}: {n_begins} lines '#begin document' and {n_ends} '#end document'; each "
            "document must have both"
        )


def check_trees(path: Path) -> None:
    def check(line: str) -> Optional[str]:
        try:
            labels = [tree.label() for tree in Tree.fromstring(line).subtrees()]
        except ValueError as error:
            return f"no tree ({str(error).splitlines()[0]})"
        wrong = [label for label in labels if label not in tuple("01234")]
        if wrong:
            return (
                f"a label is {wrong[0]!r}, where 0 to 4 must be (brackets of the text itself are "
                "written -LRB- and -RRB-)"
            )
        return None

    _check_lines(path, check)


def check_sentence_pairs(path: Path) -> None:
    def check(line: str) -> Optional[str]:
        try:
            pair = json.loads(line)
        except ValueError as error:
            return f"no JSON ({error})"
        for key in ("sentence1", "sentence2", "gold_label"):
            if not isinstance(pair, dict) or not isinstance(pair.get(key), str):
                return f'"{key}" is missing'
        labels = ("entailment", "neutral", "contradiction", "-")
        if pair["gold_label"] not in labels:
            return f'"gold_label" is {pair["gold_label"]!r}, where one of {labels} must be'
        return None

    _check_lines(path, check)


def check_questions(path: Path) -> None:
    try:
        articles = json.loads(path.read_text(encoding="utf-8"))["data"]
        questions = [
            (paragraph["context"], question)
            for article in articles
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
        if not questions:
            raise ConfigurationError(f"{path}: there is no question in it")
        for context, question in questions:
            if not question["answers"]:
                raise ConfigurationError(f"{path}: question {question.get('id')!r} has no answer")
            for answer in question["answers"]:
                begin, text = answer["answer_start"], answer["text"]
                if context[begin : begin + len(text)] != text:
                    raise ConfigurationError(
                        f"{path}: question {question.get('id')!r}: the answer {text!r} is not at "
                        f"{begin} in its paragraph"
                    )
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path}: not of SQuAD's format ({error!r})") from error
