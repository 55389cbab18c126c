"""The kinds of tasks that the benchmark knows."""

from typing import Dict, NamedTuple, Optional


class Task(NamedTuple):
    """
    A kind of task.

    # Parameters

    score_name : `str`
        The official score to compare, one of those of `INSTANCE_SCORERS`.
    allennlp_metric : `str`
        AllenNLP's metric that chooses the best epoch.
    paper_delta : `float`, optional
        The increase of the score by ELMo in Peters et al. (2018), table 1.
    """

    score_name: str
    allennlp_metric: str
    paper_delta: Optional[float] = None


TASKS: Dict[str, Task] = {
    "sst5": Task("accuracy", "accuracy", 3.3),
    "ner": Task("f1", "f1-measure-overall", 2.06),
    "chunking": Task("f1", "f1-measure-overall"),
    "snli": Task("accuracy", "accuracy", 0.7),
    "srl": Task("f1", "f1-measure-overall", 3.2),
    "coref": Task("f1", "coref_f1", 3.2),
    "squad": Task("f1", "f1", 4.7),
    "imdb": Task("accuracy", "accuracy"),
    "constituency": Task("f1", "evalb_f1_measure"),
}
"""By kind, the first part of the name of a task's folder."""

MODELS = {"baseline": "baseline", "vectors": "word vectors", "elmo": "+ ELMo"}
"""
The models of each task with their titles: with learned words; with word vectors (if there are any);
and the last of these with ELMo.
"""


def kind_of(task: str) -> str:
    """Return the kind of a task: `ner` of `ner_wnut17`, `snli` of `snli_cad/original`."""
    return task.split("/")[0].split("_")[0]
