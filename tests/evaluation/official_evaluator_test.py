"""Official scores in `allennlp evaluate`: of each task, and of what AllenNLP counts."""

import json
import shutil
from pathlib import Path
from typing import Any, List

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

from allennlp_elmo_plugin.evaluation import OfficialEvaluator
from allennlp_elmo_plugin.evaluation.official_evaluator import _predictions, official_scores

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "tasks"
NER = str(FIXTURES / "ner.txt")

WORDS = ["Anna", "saw", "it"]
TREES = [
    Tree.fromstring("(S (NP (NN Anna)) (VP (VB saw) (NP (PR it))))"),
    Tree.fromstring("(S (NP (NN Anna) (VB saw)) (NP (PR it)))"),
]
TAGS = [["B-ARG0", "B-V", "B-ARG1"], ["B-ARG0", "B-V", "O"]]
CLUSTERS = [[[(0, 0), (2, 2)]], [[(0, 0), (1, 1)], [(2, 2), (3, 3)]]]
# By the task: the score, what a model says, and its key.
CASES: Any = {
    **dict.fromkeys(("sst5", "snli", "imdb"), ("accuracy", ["good", "bad"], "label")),
    **dict.fromkeys(("ner", "chunking", "srl"), ("f1", TAGS, "tags")),
    "coref": ("f1", CLUSTERS, "clusters"),
    "squad": ("em", ["1903", "in 1904"], "best_span_str"),
    "constituency": ("f1", TREES, "trees"),
}


def instance(right: Any, task: str) -> Instance:
    """An instance for which a model should say this."""
    if CASES[task][2] == "label":
        return Instance({"label": LabelField(right)})
    metadata = {"words": WORDS, "verb_index": 1, "gold_tags": right, "clusters": right}
    metadata.update(answer_texts=[right], gold_tree=right)
    fields: Any = {"metadata": MetadataField(metadata)}
    if CASES[task][2] == "tags":
        fields["tags"] = SequenceLabelField(right, TextField([Token(word) for word in WORDS]))
    return Instance(fields)


@pytest.mark.parametrize("task", CASES)
def test_each_task_has_its_score(task: str) -> None:
    if task == "srl" and shutil.which("perl") is None:
        pytest.skip("srl-eval.pl needs perl")
    score, right, key = CASES[task]
    instances = [instance(each, task) for each in right]
    for predicted, is_right in ((right, True), ([right[0], right[0]], False)):
        found = official_scores(task, instances, [{key: each} for each in predicted])
        assert (found[score] == 100) == is_right and found[score] > 0


def evaluate(archive: str, data: str = NER, task: str = "ner", **files: Any) -> Any:
    overrides = json.dumps({"evaluation": {"type": "official", "task": task}})
    return evaluate_from_archive(archive, data, cmd_overrides=overrides, **files)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tagger that knows nothing of official scores."""
    import_plugins()
    config = {
        "dataset_reader": {"type": "conll2003"},
        "train_data_path": NER,
        "model": {
            "type": "crf_tagger",
            "text_field_embedder": {
                "token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 8}}
            },
            "encoder": {"type": "lstm", "input_size": 8, "hidden_size": 8},
        },
        "data_loader": {"batch_size": 2},
        "trainer": {"num_epochs": 15, "optimizer": {"type": "adam", "lr": 0.1}},
    }
    folder = tmp_path_factory.mktemp("tagger") / "model"
    train_model(Params(config), str(folder))
    return str(folder / "model.tar.gz")


def test_official_scores_beside_allennlps(archive: str, tmp_path: Path, caplog: Any) -> None:
    plain = evaluate_from_archive(archive, NER)
    metrics, predictions = tmp_path / "metrics", tmp_path / "predictions"
    files = {"metrics_output_file": str(metrics), "predictions_output_file": str(predictions)}
    with caplog.at_level("INFO"):
        both = evaluate(archive, **files)
    official = {name for name in both if name.startswith("official-")}
    assert {"official-f1", "official-precision", "official-f1-LOC"} <= official
    assert {name: both[name] for name in both if name not in official} == pytest.approx(plain)
    # Tags as conlleval counts them, of which this tagger has learned some.
    assert 50 < both["official-accuracy"] == pytest.approx(100 * plain["accuracy"])
    assert json.loads(metrics.read_text(encoding="utf-8")) == both
    assert predictions.read_text(encoding="utf-8").strip()
    assert '"official-f1": ' in caplog.text


@pytest.mark.parametrize(
    "loader",
    [
        {"batch_size": 2},
        {"batch_sampler": {"type": "bucket", "batch_size": 2, "sorting_keys": ["tokens"]}},
        {"batch_size": 2, "num_workers": 1, "max_instances_in_memory": 2},
    ],
    ids=["in_order", "buckets", "worker"],
)
def test_scores_the_predictions_that_allennlp_counts(archive: str, loader: Any) -> None:
    """Also where a model says something else at every call, as ELMo with carried states does."""
    loaded = load_archive(archive)
    model = loaded.model
    forward = model.forward
    seen: List[float] = []

    def rather_random(**inputs: Any) -> Any:
        torch.manual_seed(len(seen))
        seen.append(0.0)
        with torch.no_grad():
            model.tag_projection_layer._module.weight.uniform_(-1, 1)
        return forward(**inputs)

    model.forward = rather_random  # type: ignore[method-assign]
    data = DataLoader.from_params(Params(dict(loader)), reader=loaded.dataset_reader, data_path=NER)
    data.index_with(model.vocab)
    metrics = OfficialEvaluator("ner")(model, data)
    assert 0 < metrics["official-accuracy"] == pytest.approx(100 * metrics["accuracy"])
    assert sum(1 for _ in data) == len(seen)
    assert all("official" not in name for batch in data for name in batch)


def test_a_model_that_outputs_logits_alone(archive: str) -> None:
    """As ESIM: the label is the one of the highest."""
    model = load_archive(archive).model
    model.vocab.add_tokens_to_namespace(["entails", "contradicts"], "labels")
    model.make_output_human_readable = lambda output: output  # type: ignore[method-assign]
    n_labels = model.vocab.get_vocab_size("labels")
    index = model.vocab.get_token_index("entails", "labels")
    logits = torch.nn.functional.one_hot(torch.tensor([index]), n_labels)
    (found,) = _predictions(model, {"label_logits": logits})
    assert found == {"label": "entails"}


def test_an_unknown_task(archive: str) -> None:
    with pytest.raises(ConfigurationError, match="'pos'; it must be one of .*'ner'"):
        evaluate(archive, task="pos")
