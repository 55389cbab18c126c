from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Optional

from allennlp_elmo_plugin.benchmark import checks


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
}
"""By kind, the first part of the name of a task's folder."""
