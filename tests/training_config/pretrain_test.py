"""The configurations of pretraining and fine-tuning, at a small size."""

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

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from tests.support.pretraining import SMALL, SMALL_CHARACTERS, RecordLosses, write_text

CONFIGS = [
    *("original", "medium", "small", "small_corpus", "tiny_corpus", "tiny", "english"),
    *("token_embeddings", "demo"),
]
KINDS = ("perplexity", "forward_perplexity", "backward_perplexity")
Config = Callable[..., Params]


@pytest.fixture(scope="module")
def config(
    tmp_path_factory: pytest.TempPathFactory, repository_root: Path
) -> Iterator[Callable[..., Params]]:
    """Reads a configuration with small sizes, and what else is given, overridden."""
    folder = tmp_path_factory.mktemp("corpus")
    for name, seed, n_sentences in (("train", 1, 60), ("validation", 2, 11)):
        write_text(folder / f"{name}.txt", seed, n_sentences)
        text = (folder / f"{name}.txt").read_text(encoding="utf-8")
        new_text = text.replace("word3", "neu").replace("word1", "ﬁlm")
        (folder / f"new_{name}.txt").write_text(new_text, encoding="utf-8")
    make_vocabulary(folder / "train.txt", folder / "vocab")
    texts = [folder / "train.txt", folder / "new_train.txt"]
    make_vocabulary(texts, folder / "new_vocab", min_count=1)

    def read(name: str, source: str = "", domain: str = "", **changes: Any) -> Params:
        path = repository_root / "training_config" / "pretrain" / f"{name}.jsonnet"
        variables = {
            "PRETRAINED_FILE": source,
            "TRAIN_DATA_PATH": str(folder / f"{domain}train.txt"),
            "VALIDATION_DATA_PATH": str(folder / f"{domain}validation.txt"),
            "VOCABULARY_PATH": str(folder / f"{domain}vocab"),
        }
        overrides = dict(SMALL)
        if name == "fine_tune":
            overrides = {key: each for key, each in SMALL.items() if not key.startswith("model.")}
        elif name != "token_embeddings":
            overrides.update(SMALL_CHARACTERS)
        return Params.from_file(str(path), json.dumps({**overrides, **changes}), variables)

    yield read


def metrics_of(folder: Path) -> Dict[str, Any]:
    return json.loads((folder / "metrics.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CONFIGS)
def test_config_makes_all_of_a_training(name: str, config: Config, tmp_path: Path) -> None:
    train_model(config(name), str(tmp_path / "model"), dry_run=True)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CONFIGS)
def test_config_trains(name: str, config: Config, tmp_path: Path) -> None:
    model = train_model(config(name), str(tmp_path / "model"))
    assert metrics_of(tmp_path / "model")["epoch"] == 1
    archived = load_archive(tmp_path / "model" / "model.tar.gz").model.state_dict()
    assert all(torch.equal(each, archived[key]) for key, each in model.state_dict().items())


def test_configs_have_the_published_sizes(repository_root: Path, config: Config) -> None:
    folder = repository_root / "training_config" / "pretrain"
    names = sorted([*CONFIGS, "fine_tune", "original_distributed"])
    assert sorted(path.stem for path in folder.glob("*.jsonnet")) == names
    variables = dict.fromkeys(("TRAIN_DATA_PATH", "VALIDATION_DATA_PATH", "VOCABULARY_PATH"), "x")

    def published(name: str) -> Dict[str, Any]:
        path = str(folder / f"{name}.jsonnet")
        return Params.from_file(path, ext_vars=variables).as_dict(quiet=True)

    distributed = {"cuda_devices": [0, 1, 2]}
    assert published("original_distributed") == {
        **published("original"),
        "distributed": distributed,
    }
    sizes = {"original": (4096, 512, 2), "medium": (2048, 256, 1), "small": (1024, 128, 1)}
    for name, (dim, projection_dim, n_highway) in sizes.items():
        params = published(name)
        options = params["model"]["options"]
        assert (options["lstm"]["dim"], options["lstm"]["projection_dim"]) == (dim, projection_dim)
        assert options["char_cnn"]["n_highway"] == n_highway
        assert sum(n for _, n in options["char_cnn"]["filters"]) == 2048
        assert params["trainer"]["grad_norm"] == 10
        assert params["trainer"]["optimizer"]["lr"] == 0.2
        assert params["dataset_reader"]["shuffle_sentences"]
        assert not params["validation_dataset_reader"]["drop_last"]


@pytest.mark.parametrize("name", ["small_corpus", "tiny"])
def test_learning_rate_falls_to_zero_at_the_end(name: str, config: Config, tmp_path: Path) -> None:
    """Whatever the size of the text and the number of epochs; the batches are counted first."""
    changes = {"trainer.num_epochs": 2, "trainer.learning_rate_scheduler.warmup_steps": 4}
    train_model(config(name, **changes), str(tmp_path / "model"))
    rates = RecordLosses.learning_rates
    peak = max(rates)
    assert peak == rates[3] == 0.002
    assert rates[-1] <= 0.1 * peak < rates[-9]


@pytest.fixture(scope="module")
def trained(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `small`."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    train_model(config("small", **{"model.num_samples": 0, "trainer.num_epochs": 3}), str(folder))
    return folder


def test_training_learns_and_its_archive_is_the_best_epoch(trained: Path) -> None:
    metrics = metrics_of(trained)
    assert 1 < metrics["best_validation_perplexity"] < 0.8 * 43  # words
    evaluated = evaluate_from_archive(
        trained / "model.tar.gz",
        json.loads((trained / "config.json").read_text("utf-8"))["validation_data_path"],
    )
    for kind in KINDS:
        assert evaluated[kind] == pytest.approx(metrics[f"best_validation_{kind}"], rel=1e-5)
    assert evaluated["loss"] == pytest.approx(metrics["best_validation_loss"], rel=1e-5)


def test_fine_tuning_starts_from_the_source_and_improves(
    trained: Path, config: Config, tmp_path: Path
) -> None:
    export(str(trained / "model.tar.gz"), tmp_path / "source")
    callbacks = {"trainer.callbacks": ["initial_validation", "record_losses"]}
    arguments = str(tmp_path / "source"), "new_"
    train_model(config("fine_tune", *arguments, **callbacks), str(tmp_path / "run"))
    metrics = metrics_of(tmp_path / "run")
    before = metrics["initial_validation_perplexity"]
    log = (tmp_path / "run" / "out.log").read_text(encoding="utf-8")
    assert "start fresh" in log and f"initial_validation_perplexity {before:.4f}" in log
    assert metrics["best_validation_perplexity"] < before
    # Nothing of the source is needed any more.
    shutil.rmtree(tmp_path / "source")
    export(str(tmp_path / "run" / "model.tar.gz"), tmp_path / "exported")
    layers = ElmoEmbedder(str(tmp_path / "exported")).embed_sentence(["neu", "ﬁlm"])
    assert layers.shape == (3, 2, 16)


def test_before_the_first_update_it_is_the_source(
    trained: Path, config: Config, tmp_path: Path
) -> None:
    changes = {"trainer.num_epochs": 1, "trainer.callbacks": ["initial_validation"]}
    params = config("fine_tune", str(trained / "model.tar.gz"), **changes)
    train_model(params, str(tmp_path / "run"))
    metrics, source = metrics_of(tmp_path / "run"), metrics_of(trained)
    for kind in KINDS:
        expected = pytest.approx(source[f"best_validation_{kind}"], rel=1e-6)
        assert metrics[f"initial_validation_{kind}"] == expected
