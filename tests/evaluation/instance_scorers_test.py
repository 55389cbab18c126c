"""Each scorer reads the instances of its task and the outputs of its models."""

import shutil
from typing import Any, Dict, List, Tuple

import pytest
from allennlp.data import Instance, Token
from allennlp.data.fields import LabelField, MetadataField, SequenceLabelField, TextField
from nltk import Tree

from allennlp_elmo_plugin.evaluation.instance_scorers import INSTANCE_SCORERS

WORDS = ["Anna", "saw", "it"]
TREES = [
    Tree.fromstring("(S (NP (NN Anna)) (VP (VB saw) (NP (PR it))))"),
    Tree.fromstring("(S (NP (NN Anna) (VB saw)) (NP (PR it)))"),
]
TAGS = [["B-ARG0", "B-V", "B-ARG1"], ["B-ARG0", "B-V", "O"]]
ANSWERS = ["1903", "in 1904"]
LABELS = ["good", "bad"]
CLUSTERS = [[[(0, 0), (2, 2)]], [[(0, 0), (1, 1)], [(2, 2), (3, 3)]]]


def tagged(tags: List[str]) -> Instance:
    text = TextField([Token(word) for word in WORDS])
    metadata = {"words": WORDS, "verb_index": 1, "gold_tags": tags}
    fields = {"tags": SequenceLabelField(tags, text), "metadata": MetadataField(metadata)}
    return Instance(fields)  # type: ignore[arg-type]


def of(key: str, value: Any) -> Instance:
    return Instance({"metadata": MetadataField({key: value})})


CASES: Dict[str, Tuple[str, List[Instance], str, List[Any]]] = {
    **dict.fromkeys(
        ("sst5", "snli", "imdb"),
        ("accuracy", [Instance({"label": LabelField(each)}) for each in LABELS], "label", LABELS),
    ),
    **dict.fromkeys(
        ("ner", "chunking", "srl"), ("f1", [tagged(each) for each in TAGS], "tags", TAGS)
    ),
    "coref": ("f1", [of("clusters", each) for each in CLUSTERS], "clusters", CLUSTERS),
    "squad": ("f1", [of("answer_texts", [each]) for each in ANSWERS], "best_span_str", ANSWERS),
    "constituency": ("f1", [of("gold_tree", each) for each in TREES], "trees", TREES),
}


@pytest.mark.parametrize("task", INSTANCE_SCORERS)
def test_scorers(task: str) -> None:
    if task == "srl" and shutil.which("perl") is None:
        pytest.skip("srl-eval.pl needs perl")
    score, instances, key, right = CASES[task]
    for predicted, is_right in ((right, True), ([right[0], right[0]], False)):
        outputs = [{key: each} for each in predicted]
        scores = INSTANCE_SCORERS[task](instances, outputs)
        assert (scores[score] == 100) == is_right and scores[score] > 0
