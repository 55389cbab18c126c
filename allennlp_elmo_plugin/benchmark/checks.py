"""Checks of the data of tasks before anything is trained, which name file and line."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from allennlp.common.checks import ConfigurationError
from nltk import Tree

from allennlp_elmo_plugin.files.text_lines import open_lines, without_mark

Check = Callable[[str], Optional[str]]
"""Returns what is wrong with a line, or nothing."""


def _check_lines(
    path: Path, check: Check, blank: Optional[Callable[[], Optional[str]]] = None
) -> None:
    """Check each line with `check`, each blank one and the end with `blank`."""
    empty = True
    with open_lines(path, ConfigurationError) as text:
        # AllenNLP's readers of these files know neither.
        if text.is_gzip:
            raise ConfigurationError(f"{path}: it is compressed (gzip); unpack it")
        for raw in iter(text.read_line, b""):
            if text.number == 1 and without_mark(raw) != raw:
                raise ConfigurationError(
                    f"{path}, line 1: it begins with a byte order mark; save it without"
                )
            line = text.decode(raw).strip()
            problem = check(line) if line else blank and blank()
            if problem:
                found = f": {line[:80]!r}" if line else ""
                raise ConfigurationError(f"{path}, line {text.number}: {problem}{found}")
            empty = empty and not line
    problem = blank and blank()
    if problem:
        raise ConfigurationError(f"{path}, line {text.number}: {problem}")
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
    """The brackets in the columns of a CoNLL-2012 sentence, from the twelfth to the last."""

    def __init__(self) -> None:
        self.open: Counter = Counter()
        self.n_begins = self.n_ends = self.n_predicates = 0

    def check(self, line: str) -> Optional[str]:
        if line.startswith("#"):
            if line.startswith("#end document"):
                self.n_ends += 1
            if line.startswith("#begin document"):
                self.n_begins += 1
            return self.at_end()
        columns = line.split()
        if len(columns) < 12:
            return f"{len(columns)} columns, where CoNLL-2012 has 12 or more"
        self.n_predicates += len(columns) - 12
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


def check_srl(path: Path) -> None:
    if not path.is_dir():
        raise ConfigurationError(f"{path}: AllenNLP reads a folder of *gold_conll, not a file")
    if shutil.which("perl") is None:
        raise ConfigurationError("The score of SRL is that of srl-eval.pl: it needs perl")
    files = sorted(path.rglob("*gold_conll"))
    if not files:
        raise ConfigurationError(f"{path}: a folder without *gold_conll")
    brackets = _Brackets()
    for file in files:
        _check_lines(file, brackets.check, brackets.at_end)
    if not brackets.n_predicates:
        raise ConfigurationError(
            f"{path}: there is no predicate in it (a column of brackets before the last, for each)"
        )


def check_coreference(path: Path) -> None:
    brackets = _Brackets()
    _check_lines(path, brackets.check, brackets.at_end)
    if not brackets.n_begins == brackets.n_ends > 0:
        raise ConfigurationError(
            f"{path}: {brackets.n_begins} lines '#begin document' and {brackets.n_ends} "
            "'#end document'; each document must have both"
        )


def check_trees(path: Path) -> None:
    def check(line: str) -> Optional[str]:
        try:
            tree = Tree.fromstring(line)
        except ValueError as error:
            return f"no tree ({str(error).splitlines()[0]})"
        labels = [subtree.label() for subtree in tree.subtrees()]
        wrong = [label for label in labels if label not in tuple("01234")]
        if wrong:
            return (
                f"a label is {wrong[0]!r}, where 0 to 4 must be (brackets of the text itself are "
                "written -LRB- and -RRB-)"
            )
        return None if tree.leaves() else "a sentence without words"

    _check_lines(path, check)


def check_constituents(path: Path) -> None:
    # NLTK's reader, which AllenNLP's uses, makes something of what is no tree.
    def check(line: str) -> Optional[str]:
        try:
            tree = Tree.fromstring(line, remove_empty_top_bracketing=True)
        except ValueError as error:
            return f"no tree, which must be one line ({str(error).splitlines()[0]})"
        for subtree in tree.subtrees():
            if not len(subtree):
                return f"the constituent {subtree.label()!r} has no words"
            if subtree.label() == "-NONE-":
                return "an empty element (-NONE-); remove them, as scripts/treebank.py does"
            tagged = [isinstance(child, str) for child in subtree]
            if any(tagged) and len(subtree) > 1:
                return f"a word beside others in {subtree.label()!r}: each needs a tag, (NN word)"
            if not subtree.label():
                return "a constituent without a label"
        if re.split("[-=|]", tree.label())[0] in ("TOP", "VROOT"):
            if len(tree) > 1:
                return (
                    f"{tree.label()!r} has {len(tree)} children, of which AllenNLP's reader keeps "
                    "the first; put them into one constituent"
                )
            tree = tree[0]
        if isinstance(tree[0], str):
            return "a tagged word alone, without a constituent"
        return None

    _check_lines(path, check)


def _strings(line: str, keys: Sequence[str]) -> Tuple[Dict[str, Any], Optional[str]]:
    """Return the JSON object of a line, and what is wrong with it or with its strings."""
    try:
        found = json.loads(line)
    except ValueError as error:
        return {}, f"no JSON ({error})"
    for key in keys:
        if not isinstance(found, dict) or not isinstance(found.get(key), str):
            return {}, f'"{key}" is missing, or no string'
    return found, None


def check_classified_texts(path: Path) -> None:
    def check(line: str) -> Optional[str]:
        keys = ("text", "label")
        found, problem = _strings(line, keys)
        if problem:
            return problem
        for key in keys:
            if not found[key].strip():
                return f'"{key}" is empty'
        return None

    _check_lines(path, check)


def check_sentence_pairs(path: Path) -> None:
    def check(line: str) -> Optional[str]:
        pair, problem = _strings(line, ("sentence1", "sentence2", "gold_label"))
        if problem:
            return problem
        labels = ("entailment", "neutral", "contradiction", "-")
        if pair["gold_label"] not in labels:
            return f'"gold_label" is {pair["gold_label"]!r}, where one of {labels} must be'
        if pair["gold_label"] == "-":  # AllenNLP leaves it out
            return None
        for key in ("sentence1", "sentence2"):
            if not pair[key].strip():
                return f'"{key}" has no words'
        return None

    _check_lines(path, check)


def check_questions(path: Path) -> None:
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; give a file")
    n_questions = 0
    try:
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    n_questions += 1
                    problem = _question_problem(paragraph["context"], question)
                    if problem:
                        raise ConfigurationError(
                            f"{path}: question {question.get('id')!r} {problem}"
                        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{path}: not of SQuAD's format ({error!r})") from error
    if not n_questions:
        raise ConfigurationError(f"{path}: there is no question in it")


def _question_problem(context: str, question: Dict[str, Any]) -> Optional[str]:
    if not question["question"].strip():
        return "has no words"
    if not question["answers"]:
        return "has no answer"
    for answer in question["answers"]:
        begin, text = answer["answer_start"], answer["text"]
        if begin < 0 or not text.strip() or context[begin : begin + len(text)] != text:
            return f"has the answer {text!r}, which is not at {begin} in its paragraph"
    return None
