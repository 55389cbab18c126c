import json
from pathlib import Path
from typing import Any

import pytest
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.plugins import import_plugins

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
