import json
from pathlib import Path
from typing import Any, List

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.plugins import import_plugins
from allennlp.data import DataLoader
from allennlp.models import load_archive

from allennlp_elmo_plugin.evaluation import OfficialEvaluator

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "tasks"


def evaluator(**arguments: str) -> str:
    return json.dumps({"evaluation": {"type": "official", **arguments}})


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tagger that knows nothing of official scores."""
    import_plugins()
    config = {
        "dataset_reader": {"type": "conll2003"},
        "train_data_path": str(FIXTURES / "ner.txt"),
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


def test_official_scores_beside_allennlps(archive: str, tmp_path: Path) -> None:
    data = str(FIXTURES / "ner.txt")
    plain = evaluate_from_archive(archive, data)
    files: Any = {name: str(tmp_path / name) for name in ("metrics", "predictions")}
    both = evaluate_from_archive(
        archive,
        data,
        cmd_overrides=evaluator(task="ner"),
        metrics_output_file=files["metrics"],
        predictions_output_file=files["predictions"],
    )
    official = {name for name in both if name.startswith("official-")}
    assert {"official-f1", "official-precision", "official-f1-LOC"} <= official
    assert {name: both[name] for name in both if name not in official} == pytest.approx(plain)
    # Tags as conlleval counts them, of which this tagger has learned some.
    assert 50 < both["official-accuracy"] == pytest.approx(100 * plain["accuracy"])
    assert json.loads(Path(files["metrics"]).read_text(encoding="utf-8")) == both
    assert Path(files["predictions"]).read_text(encoding="utf-8").strip()


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
    data = DataLoader.from_params(
        Params(dict(loader)), reader=loaded.dataset_reader, data_path=str(FIXTURES / "ner.txt")
    )
    data.index_with(model.vocab)
    metrics = OfficialEvaluator("ner")(model, data)
    assert 0 < metrics["official-accuracy"] == pytest.approx(100 * metrics["accuracy"])
    assert sum(1 for _ in data) == len(seen)
    assert all("official" not in name for batch in data for name in batch)


def test_scores_are_logged(archive: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        evaluate_from_archive(
            archive, str(FIXTURES / "ner.txt"), cmd_overrides=evaluator(task="ner")
        )
    assert '"official-f1": ' in caplog.text


def test_no_instance(archive: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("-DOCSTART- -X- -X- O\n\n")
    with pytest.raises(ConfigurationError, match="no instance in the data"):
        evaluate_from_archive(
            archive, str(tmp_path / "empty.txt"), cmd_overrides=evaluator(task="ner")
        )


def test_unknown_task(archive: str) -> None:
    with pytest.raises(ConfigurationError, match="'pos'; it must be one of .*'ner'"):
        evaluate_from_archive(
            archive, str(FIXTURES / "ner.txt"), cmd_overrides=evaluator(task="pos")
        )


@pytest.mark.parametrize("task", ["snli", "coref", "squad", "srl"])
def test_task_of_another_model(archive: str, task: str) -> None:
    with pytest.raises(ConfigurationError, match=f"for the task '{task}', but there is no '"):
        evaluate_from_archive(
            archive, str(FIXTURES / "ner.txt"), cmd_overrides=evaluator(task=task)
        )
