"""The kinds of tasks that the benchmark knows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Optional

from allennlp_elmo_plugin.benchmark import checks


@dataclass(frozen=True)
class Task:
    """
    A kind of task.

    # Parameters

    score_name : `str`
        The official score to compare, one of those of `INSTANCE_SCORERS`.
    allennlp_metric : `str`
        AllenNLP's metric that chooses the best epoch.
    paper_delta : `float`, optional
        The increase of the score by ELMo in Peters et al. (2018), table 1.
    check : `Callable[[Path], None]`
        Raises a `ConfigurationError` that names file and line (or question) if a file does not have
        the task's format.
    """

    score_name: str
    allennlp_metric: str
    paper_delta: Optional[float]
    check: Callable[[Path], None]


TASKS: Dict[str, Task] = {
    "sst5": Task("accuracy", "accuracy", 3.3, checks.check_trees),
    "ner": Task(
        "f1",
        "f1-measure-overall",
        2.06,
        checks.check_columns(4, "word, part of speech, chunk, entity"),
    ),
    "chunking": Task(
        "f1",
        "f1-measure-overall",
        None,
        checks.check_columns(3, "word, part of speech, chunk"),
    ),
    "snli": Task("accuracy", "accuracy", 0.7, checks.check_sentence_pairs),
    "srl": Task("f1", "f1-measure-overall", 3.2, checks.check_srl),
    "coref": Task("f1", "coref_f1", 3.2, checks.check_coreference),
    "squad": Task("f1", "f1", 4.7, checks.check_questions),
    "imdb": Task("accuracy", "accuracy", None, checks.check_classified_texts),
    "constituency": Task("f1", "evalb_f1_measure", None, checks.check_constituents),
}
"""By kind, the first part of the name of a task's folder."""
