"""Every configuration of pretraining, trained for a few steps by AllenNLP at a small size."""

import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models import load_archive

from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from tests.support.pretraining import (
    BATCH_SIZE,
    N_WORDS,
    SMALL,
    SMALL_CHARACTERS,
    RecordLosses,
    write_text,
)
from tests.support.training_runs import train

CONFIGS = [
    "original",
    "medium",
    "small",
    "small_corpus",
    "tiny_corpus",
    "tiny",
    "english",
    "token_embeddings",
    "demo",
]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with train.txt, validation.txt and a vocabulary, which the environment names."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_text(folder / "train.txt", seed=1, n_sentences=60)
    write_text(folder / "validation.txt", seed=2, n_sentences=11)
    make_vocabulary(folder / "train.txt", folder / "vocab")
    monkeypatch.setenv("TRAIN_DATA_PATH", str(folder / "train.txt"))
    monkeypatch.setenv("VALIDATION_DATA_PATH", str(folder / "validation.txt"))
    monkeypatch.setenv("VOCABULARY_PATH", str(folder / "vocab" / "vocabulary"))
    return folder


Config = Callable[..., Params]


@pytest.fixture
def config(corpus: Path, repository_root: Path) -> Config:
    """Reads a configuration with its sizes, and what else is given, overridden."""

    def read(name: str = "small", changes: Dict[str, Any] = {}) -> Params:  # noqa: B006
        path = str(repository_root / "training_config" / "pretrain" / f"{name}.jsonnet")
        overrides = {**SMALL, **changes}
        if name != "token_embeddings":
            overrides.update(SMALL_CHARACTERS)
        return Params.from_file(path, json.dumps(overrides))

    return read


@pytest.mark.parametrize("name", CONFIGS)
def test_config_trains_archives_and_evaluates(name: str, config: Config, corpus: Path) -> None:
    folder = corpus.parent / "model"
    model = train_model(config(name), str(folder))

    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["epoch"] == 1
    assert 1 < metrics["training_perplexity"] < 2 * N_WORDS
    archive = load_archive(folder / "model.tar.gz")
    for key, value in model.state_dict().items():
        assert torch.equal(value, archive.model.state_dict()[key]), key

    evaluated = evaluate_from_archive(folder / "model.tar.gz", str(corpus / "validation.txt"))
    for key in ("perplexity", "forward_perplexity", "backward_perplexity"):
        assert evaluated[key] == pytest.approx(metrics[f"best_validation_{key}"], rel=1e-5)


@pytest.mark.parametrize("name", ["small_corpus", "tiny_corpus", "tiny", "english"])
def test_learning_rate_falls_to_zero_at_the_end(name: str, config: Config, corpus: Path) -> None:
    """Whatever the size of the text and the number of epochs."""
    changes = {
        "trainer.num_epochs": 3,
        "trainer.learning_rate_scheduler.warmup_steps": 4,
    }
    train_model(config(name, changes), str(corpus.parent / "model"))
    rates = RecordLosses.learning_rates
    peak = max(rates)
    assert peak == rates[3] == 0.002
    # The batches of shuffled sentences are counted before they are shuffled.
    assert rates[-1] <= 0.1 * peak < rates[-9]


def test_more_epochs_have_a_learning_rate(config: Config, corpus: Path) -> None:
    """Those of a run that ended with a learning rate of zero."""
    folder = corpus.parent / "model"
    changes = {
        "trainer.num_epochs": 1,
        "trainer.learning_rate_scheduler.warmup_steps": 4,
    }
    train_model(config("small_corpus", changes), str(folder))
    n_steps = len(RecordLosses.learning_rates)
    assert RecordLosses.learning_rates[-1] == 0
    more = config("small_corpus", {**changes, "trainer.num_epochs": 2})
    more.to_file(str(folder / "config.json"))
    train_model(more, str(folder), recover=True)
    n_left = range(n_steps - 1, -1, -1)
    expected = [0.002 * n / (2 * n_steps - 4) for n in n_left]
    assert RecordLosses.learning_rates == pytest.approx(expected)


def test_configs_have_the_published_sizes(config: Config, repository_root: Path) -> None:
    folder = repository_root / "training_config" / "pretrain"
    names = sorted([*CONFIGS, "fine_tune", "original_distributed"])
    assert sorted(path.stem for path in folder.glob("*.jsonnet")) == names
    one, three = (
        Params.from_file(str(folder / f"{name}.jsonnet")).as_dict(quiet=True)
        for name in ("original", "original_distributed")
    )
    assert three == {**one, "distributed": {"cuda_devices": [0, 1, 2]}}
    sizes = {"original": (4096, 512, 2), "medium": (2048, 256, 1), "small": (1024, 128, 1)}
    for name, (dim, projection_dim, n_highway) in sizes.items():
        params = Params.from_file(str(folder / f"{name}.jsonnet")).as_dict(quiet=True)
        options = params["model"]["options"]
        assert (options["lstm"]["dim"], options["lstm"]["projection_dim"]) == (dim, projection_dim)
        assert options["char_cnn"]["n_highway"] == n_highway
        assert sum(n for _, n in options["char_cnn"]["filters"]) == 2048
        assert params["trainer"]["grad_norm"] == 10
        assert params["trainer"]["optimizer"]["lr"] == 0.2
        assert params["dataset_reader"]["shuffle_sentences"]
        assert not params["validation_dataset_reader"]["drop_last"]


def test_config_trains_in_two_processes(config: Config, corpus: Path) -> None:
    changes = {"distributed.cuda_devices": [-1, -1], "trainer.callbacks": []}
    params = config("original_distributed", changes).as_dict(quiet=True)
    path = corpus / "config.json"
    path.write_text(json.dumps(params), encoding="utf-8")
    train(path, corpus.parent / "model")
    metrics = json.loads((corpus.parent / "model" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["epoch"] == 1
    assert 1 < metrics["training_perplexity"] < 2 * N_WORDS
    load_archive(corpus.parent / "model" / "model.tar.gz")


# The others differ from the original in nothing but sizes.


def _train(params: Params, folder: Path) -> List[float]:
    train_model(params, str(folder))
    return RecordLosses.losses


def test_a_seed_repeats_a_run_exactly(config: Config, corpus: Path) -> None:
    first = _train(config(), corpus.parent / "first")
    assert _train(config(), corpus.parent / "second") == first
    # AllenNLP takes the seeds out of the parameters that it has used.
    other = config(changes={"pytorch_seed": 1, "numpy_seed": 1, "random_seed": 1})
    assert _train(other, corpus.parent / "other") != first


def test_training_learns_what_is_there_to_learn(config: Config, corpus: Path) -> None:
    (corpus / "train.txt").write_text("word1 word2 word3 word4\n" * 200, encoding="utf-8")
    (corpus / "validation.txt").write_text("word1 word2 word3 word4\n" * 5, encoding="utf-8")
    train_model(config("small", {"model.num_samples": 0}), str(corpus.parent / "model"))
    metrics = json.loads((corpus.parent / "model" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["best_validation_perplexity"] < 4


STOCK = {"type": "multiprocess", "batch_size": BATCH_SIZE}
