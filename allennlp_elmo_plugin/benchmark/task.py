import json
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Optional

from allennlp.common.checks import ConfigurationError
from nltk import Tree


@dataclass(frozen=True)
class Task:
    """
    What the benchmark knows of a kind of task.

    # Parameters

    score_name : `str`
        The official score that is compared, one of those of `INSTANCE_SCORERS`.
    allennlp_metric : `str`
        AllenNLP's metric for the same, by which the best epoch is chosen.
    paper_delta : `float`, optional
        What ELMo adds to the baseline in Peters et al. (2018), table 1.
    check : `Callable[[Path], None]`
        Raises a `ConfigurationError` that names file and line (for JSON of SQuAD, the question) if
        a file is not of the task's format.
    """

    score_name: str
    allennlp_metric: str
    paper_delta: Optional[float]
    check: Callable[[Path], None]


def _check_lines(path: Path, check: Callable[[str], Optional[str]]) -> None:
    """`check` says what is wrong with a line, or nothing. Blank lines are passed over."""
    if path.is_dir():
        files = sorted(path.rglob("*.gold_conll"))
        if not files:
            raise ConfigurationError(f"{path}: a folder without *.gold_conll")
        for file in files:
            _check_lines(file, check)
        return
    empty = True
    with path.open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            try:
                line = raw.decode("utf-8").strip()
            except UnicodeDecodeError as error:
                raise ConfigurationError(f"{path}, line {number}: not UTF-8 ({error})") from error
            if line:
                empty = False
                problem = check(line)
                if problem:
                    raise ConfigurationError(f"{path}, line {number}: {problem}: {line[:80]!r}")
    if empty:
        raise ConfigurationError(f"{path}: there is nothing in it")


def _check_columns(n_columns: int, what: str) -> Callable[[Path], None]:
    def check(line: str) -> Optional[str]:
        columns = line.split()
        if len(columns) != n_columns:
            return f"{len(columns)} columns, where there must be {n_columns} ({what})"
        tag = columns[-1]
        if tag != "O" and not (tag[:2] in ("B-", "I-") and len(tag) > 2):
            return f"the tag is {tag!r}, where O, B-TYPE or I-TYPE must be"
        return None

    return lambda path: _check_lines(path, check)


def _check_conll_2012(path: Path) -> None:
    def check(line: str) -> Optional[str]:
        if not line.startswith("#") and len(line.split()) < 12:
            return f"{len(line.split())} columns, where CoNLL-2012 has 12 or more"
        return None

    _check_lines(path, check)


def _check_trees(path: Path) -> None:
    def check(line: str) -> Optional[str]:
        try:
            label = Tree.fromstring(line).label()
        except ValueError as error:
            return f"no tree ({str(error).splitlines()[0]})"
        return None if label in tuple("01234") else f"the label is {label!r}, where 0 to 4 must be"

    _check_lines(path, check)


def _check_sentence_pairs(path: Path) -> None:
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


def _check_questions(path: Path) -> None:
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
            for answer in question["answers"]:
                begin, text = answer["answer_start"], answer["text"]
                if context[begin : begin + len(text)] != text:
                    raise ConfigurationError(
                        f"{path}: question {question.get('id')!r}: the answer {text!r} is not at "
                        f"{begin} in its paragraph"
                    )
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path}: not of SQuAD's format ({error!r})") from error


TASKS: Dict[str, Task] = {
    "sst5": Task("accuracy", "accuracy", 3.3, _check_trees),
    "ner": Task(
        "f1",
        "f1-measure-overall",
        2.06,
        _check_columns(4, "word, part of speech, chunk, entity"),
    ),
    "chunking": Task(
        "f1",
        "f1-measure-overall",
        None,
        _check_columns(3, "word, part of speech, chunk"),
    ),
    "snli": Task("accuracy", "accuracy", 0.7, _check_sentence_pairs),
    "srl": Task("f1", "f1-measure-overall", 3.2, _check_conll_2012),
    "coref": Task("f1", "coref_f1", 3.2, _check_conll_2012),
    "squad": Task("f1", "f1", 4.7, _check_questions),
}
"""By kind, the first part of the name of a task's folder."""
