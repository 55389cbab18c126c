"""The configuration of fine-tuning, from a model that is trained here to the export."""

import json
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models import load_archive

from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from tests.support.pretraining import SMALL, SMALL_CHARACTERS, RecordLosses, write_text

READERS = {key: value for key, value in SMALL.items() if not key.startswith("model.")}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory, repository_root: Path) -> Iterator[Path]:
    """A folder with a trained model, its export `elmo`, and texts of it and of a new domain."""
    folder = tmp_path_factory.mktemp("pretrained")
    for name, seed, n_sentences in (("train", 1, 60), ("validation", 2, 11)):
        write_text(folder / f"{name}.txt", seed, n_sentences)
        text = (folder / f"{name}.txt").read_text(encoding="utf-8")
        new_text = text.replace("word3", "neu").replace("word1", "ﬁlm")
        (folder / f"new_{name}.txt").write_text(new_text, encoding="utf-8")
    make_vocabulary(folder / "train.txt", folder / "vocab")
    make_vocabulary(
        [folder / "train.txt", folder / "new_train.txt"], folder / "new_vocab", min_count=1
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAIN_DATA_PATH", str(folder / "train.txt"))
        patch.setenv("VALIDATION_DATA_PATH", str(folder / "validation.txt"))
        patch.setenv("VOCABULARY_PATH", str(folder / "vocab" / "vocabulary"))
        path = str(repository_root / "training_config" / "pretrain" / "small.jsonnet")
        train_model(
            Params.from_file(path, json.dumps({**SMALL, **SMALL_CHARACTERS})),
            str(folder / "model"),
        )
    export(str(folder / "model" / "model.tar.gz"), folder / "elmo")
    yield folder


FineTune = Callable[..., Dict[str, Any]]


@pytest.fixture
def fine_tune(
    pretrained: Path, tmp_path: Path, repository_root: Path, monkeypatch: pytest.MonkeyPatch
) -> FineTune:
    """Fine-tunes into `tmp_path / name`, and gives the metrics."""

    def run(
        source: Path,
        name: str = "fine_tuned",
        text: str = "new_",
        changes: Dict[str, Any] = {},  # noqa: B006
        **kwargs: Any,
    ) -> Dict[str, Any]:
        monkeypatch.setenv("PRETRAINED_FILE", str(source))
        monkeypatch.setenv("TRAIN_DATA_PATH", str(pretrained / f"{text}train.txt"))
        monkeypatch.setenv("VALIDATION_DATA_PATH", str(pretrained / f"{text}validation.txt"))
        monkeypatch.setenv("VOCABULARY_PATH", str(pretrained / f"{text}vocab" / "vocabulary"))
        path = str(repository_root / "training_config" / "pretrain" / "fine_tune.jsonnet")
        callbacks = {"trainer.callbacks": ["initial_validation", "record_losses"]}
        params = Params.from_file(path, json.dumps({**READERS, **callbacks, **changes}))
        train_model(params, str(tmp_path / name), **kwargs)
        return json.loads((tmp_path / name / "metrics.json").read_text(encoding="utf-8"))

    return run


def test_new_domain(pretrained: Path, fine_tune: FineTune, tmp_path: Path) -> None:
    source = shutil.copytree(pretrained / "elmo", tmp_path / "source")
    metrics = fine_tune(source)
    log = (tmp_path / "fine_tuned" / "out.log").read_text(encoding="utf-8")
    assert "start fresh" in log
    before = metrics["initial_validation_perplexity"]
    assert f"initial_validation_perplexity {before:.4f}" in log
    assert metrics["best_validation_perplexity"] < before
    # Nothing of the source is needed any more.
    shutil.rmtree(source)
    archive = str(tmp_path / "fine_tuned" / "model.tar.gz")
    evaluated = evaluate_from_archive(archive, str(pretrained / "new_validation.txt"))
    assert evaluated["perplexity"] == pytest.approx(metrics["best_validation_perplexity"], rel=1e-5)
    export(archive, tmp_path / "exported")
    files = [str(tmp_path / "exported" / name) for name in ("options.json", "weights.hdf5")]
    assert ElmoEmbedder(*files).embed_sentence(["neu", "ﬁlm"]).shape == (3, 2, 16)


def test_before_the_first_update_it_is_the_source(pretrained: Path, fine_tune: FineTune) -> None:
    archive = pretrained / "model" / "model.tar.gz"
    metrics = fine_tune(archive, text="", changes={"trainer.num_epochs": 1})
    expected = evaluate_from_archive(str(archive), str(pretrained / "validation.txt"))
    for name in ("perplexity", "forward_perplexity", "backward_perplexity"):
        found = metrics[f"initial_validation_{name}"]
        assert found == pytest.approx(expected[name], rel=1e-6)


def test_initial_validation_changes_nothing(pretrained: Path, fine_tune: FineTune) -> None:
    fine_tune(pretrained / "elmo")
    with_validation = RecordLosses.losses
    changes = {"trainer.callbacks": ["record_losses"]}
    metrics = fine_tune(pretrained / "elmo", "without", changes=changes)
    assert not any(name.startswith("initial") for name in metrics)
    assert len(with_validation) > 10 and with_validation == RecordLosses.losses


def test_it_stops_when_it_helps_no_more(pretrained: Path, fine_tune: FineTune) -> None:
    changes = {"trainer.num_epochs": 40, "trainer.optimizer.lr": 1.0}
    metrics = fine_tune(pretrained / "elmo", changes=changes)
    assert metrics["epoch"] == metrics["best_epoch"] + 2 < 39


def test_recovered_run_keeps_what_was_before_it(
    pretrained: Path, fine_tune: FineTune, tmp_path: Path
) -> None:
    metrics = fine_tune(pretrained / "elmo", changes={"trainer.num_epochs": 1})
    config = tmp_path / "fine_tuned" / "config.json"
    text = config.read_text(encoding="utf-8")
    assert '"num_epochs": 1' in text
    config.write_text(text.replace('"num_epochs": 1', '"num_epochs": 2'), encoding="utf-8")
    again = fine_tune(pretrained / "elmo", changes={"trainer.num_epochs": 2}, recover=True)
    assert again["epoch"] == 1
    name = "initial_validation_perplexity"
    assert again[name] == metrics[name] != again["validation_perplexity"]


def test_token_embeddings(pretrained: Path, fine_tune: FineTune, tmp_path: Path) -> None:
    options = {
        "lstm": {"dim": 12, "projection_dim": 8},
        "sample_softmax": False,
        "share_embedding_softmax": True,
        "bidirectional": True,
    }
    readers = {
        f"{name}.max_characters_per_token": None
        for name in ("dataset_reader", "validation_dataset_reader")
    }
    changes = {**readers, "model.options": options, "model.pretrained_file": None}
    fine_tune(pretrained / "elmo", "source", text="", changes=changes)
    source = load_archive(tmp_path / "source" / "model.tar.gz").model
    metrics = fine_tune(tmp_path / "source" / "model.tar.gz", "tuned", changes=readers)
    assert metrics["best_validation_perplexity"] < metrics["initial_validation_perplexity"]
    tuned = load_archive(tmp_path / "tuned" / "model.tar.gz").model
    assert tuned.softmax.weight is tuned.bilm.token_layer.weight
    assert tuned.softmax.weight.size(0) > source.softmax.weight.size(0)
    assert torch.isfinite(tuned.softmax.weight).all()
