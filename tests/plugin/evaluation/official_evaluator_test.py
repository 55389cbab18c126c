"""Official scores in `allennlp evaluate`: of each task, and of what AllenNLP counts."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.plugins import import_plugins
from allennlp.data import DataLoader, Instance, Token
from allennlp.data.fields import LabelField, MetadataField, SequenceLabelField, TextField
from allennlp.models import load_archive
from nltk import Tree

from allennlp_elmo_plugin.plugin.evaluation import OfficialEvaluator
from allennlp_elmo_plugin.plugin.evaluation.official_evaluator import official_scores

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "tasks"
NER = str(FIXTURES / "ner.txt")

WORDS = ["Anna", "saw", "it"]
TREES = [
    "(S (NP (NN Anna)) (VP (VB saw) (NP (PR it))))",
    "(S (NP (NN Anna) (VB saw)) (NP (PR it)))",
]
# What a model says by its key, right for each of two instances, and the score
CASES = {
    **dict.fromkeys(("sst5", "snli", "imdb"), ("label", ["good", "bad"], "accuracy")),
    **dict.fromkeys(
        ("ner", "chunking", "srl"),
        ("tags", [["B-ARG0", "B-V", "B-ARG1"], ["B-ARG0", "B-V", "O"]], "f1"),
    ),
    "coref": ("clusters", [[[(0, 0), (2, 2)]], [[(0, 0), (1, 1)], [(2, 2), (3, 3)]]], "f1"),
    "squad": ("best_span_str", ["1903", "in 1904"], "em"),
    "constituency": ("trees", list(map(Tree.fromstring, TREES)), "f1"),
}


@pytest.mark.parametrize("task", CASES)
def test_each_task_has_its_score(task):
    if task == "srl" and shutil.which("perl") is None:
        pytest.skip("srl-eval.pl needs perl")
    key, right, score = CASES[task]
    instances = []
    for answer in right:
        metadata = {"words": WORDS, "verb_index": 1, "gold_tags": answer, "clusters": answer}
        metadata.update(answer_texts=[answer], gold_tree=answer)
        fields = {"metadata": MetadataField(metadata)}
        if key == "tags":
            fields["tags"] = SequenceLabelField(answer, TextField(list(map(Token, WORDS))))
        if key == "label":
            fields = {"label": LabelField(answer)}
        instances.append(Instance(fields))
    for predicted, is_right in ((right, True), ([right[0], right[0]], False)):
        scores = official_scores(task, instances, [{key: answer} for answer in predicted])
        assert (scores[score] == 100) == is_right and scores[score] > 0


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """A tagger that knows nothing of official scores."""
    import_plugins()
    embedder = {"type": "embedding", "embedding_dim": 8}
    config = {
        "dataset_reader": {"type": "conll2003"},
        "train_data_path": NER,
        "model": {
            "type": "crf_tagger",
            "text_field_embedder": {"token_embedders": {"tokens": embedder}},
            "encoder": {"type": "lstm", "input_size": 8, "hidden_size": 8},
        },
        "data_loader": {"batch_size": 2},
        "trainer": {"num_epochs": 15, "optimizer": {"type": "adam", "lr": 0.1}},
    }
    folder = tmp_path_factory.mktemp("tagger") / "model"
    train_model(Params(config), str(folder))
    return str(folder / "model.tar.gz")


def test_official_scores_beside_allennlps(archive, tmp_path):
    plain = evaluate_from_archive(archive, NER)
    metrics, predictions = tmp_path / "metrics", tmp_path / "predictions"
    files = {"metrics_output_file": str(metrics), "predictions_output_file": str(predictions)}
    overrides = json.dumps({"evaluation": {"type": "official", "task": "ner"}})
    both = evaluate_from_archive(archive, NER, cmd_overrides=overrides, **files)
    official = {name for name in both if name.startswith("official-")}
    assert {"official-f1", "official-precision", "official-f1-LOC"} <= official
    assert {name: both[name] for name in both if name not in official} == pytest.approx(plain)
    # Tags as conlleval counts them, of which this tagger has learned some.
    assert 50 < both["official-accuracy"] == pytest.approx(100 * plain["accuracy"])
    assert json.loads(metrics.read_text(encoding="utf-8")) == both
    assert predictions.read_text(encoding="utf-8").strip()


@pytest.mark.parametrize(
    "loader",
    [
        {"batch_sampler": {"type": "bucket", "batch_size": 2, "sorting_keys": ["tokens"]}},
        {"batch_size": 2, "num_workers": 1, "max_instances_in_memory": 2},
    ],
)
def test_scores_the_predictions_that_allennlp_counts(archive, loader):
    """Also where a model says something else at every call, as ELMo with carried states does."""
    loaded = load_archive(archive)
    model = loaded.model
    torch.manual_seed(0)

    def change(*arguments):
        model.tag_projection_layer._module.weight.data.uniform_(-1, 1)

    model.register_forward_pre_hook(change)
    data = DataLoader.from_params(Params(dict(loader)), reader=loaded.dataset_reader, data_path=NER)
    data.index_with(model.vocab)
    for _ in range(2):
        metrics = OfficialEvaluator("ner")(model, data)
        assert 0 < metrics["official-accuracy"] == pytest.approx(100 * metrics["accuracy"])


def test_an_unknown_task():
    with pytest.raises(ConfigurationError, match="'pos'; it must be one of .*'ner'"):
        OfficialEvaluator("pos")
