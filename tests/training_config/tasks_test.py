"""The task configs: each is trained on a few sentences in the format of its task, and loaded."""

import json
import math
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, List

import numpy as np
import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.plugins import import_plugins
from allennlp.data.batch import Batch
from allennlp.models import Model, load_archive
from allennlp.training.metrics import evalb_bracketing_scorer

from allennlp_elmo_plugin.modules import Elmo
from allennlp_elmo_plugin.modules.elmo_files import elmo_sections
from tests.support.testing import write_random_elmo

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "tasks"

# Folder, baseline, variable of the data, file, dimension of the word vectors, metric
TASKS = [
    ("srl", "srl", "SRL", "srl", 100, "f1-measure-overall"),
    ("ner", "ner", "NER", "ner.txt", 50, "f1-measure-overall"),
    ("snli", "esim", "SNLI", "snli.jsonl", 300, "accuracy"),
    ("sst", "bcn", "SST", "sst.txt", 300, "accuracy"),
    ("coref", "coref", "COREF", "coref.gold_conll", 300, "coref_f1"),
    ("squad", "bidaf", "SQUAD", "squad.json", 100, "em"),
    ("constituency", "constituency", "PTB", "ptb.txt", 100, "evalb_f1_measure"),
    ("imdb", "imdb", "IMDB", "imdb.jsonl", 100, "accuracy"),
    ("chunking", "chunking", "CHUNKING", "chunking.txt", 100, "f1-measure-overall"),
]
# Of `allennlp evaluate`, in percent
OFFICIAL_SCORES = {
    "srl": "official-f1",
    "ner": "official-f1",
    "snli": "official-accuracy-neutral",
    "sst": "official-accuracy-4",
    "coref": "official-f1",
    "squad": "official-em",
    "chunking": "official-f1",
}
IDS = [task[0] for task in TASKS]
ELMO_DIM = 12
# A few sentences want larger steps.
CHANGES: Dict[str, Dict[str, Any]] = {
    "srl": {"model.encoder.num_layers": 2},
    # The words alone are mostly neutral, and the sentences that it is validated on are not.
    "sst": {
        "dataset_reader.use_subtrees": False,
        "trainer.num_epochs": 20,
        "model.output_layer.output_dims": [24, 12, 5],
        "model.output_layer.dropout": 0.0,
        "model.embedding_dropout": 0.0,
        "model.pre_encode_feedforward.dropout": 0.0,
        "model.integrator_dropout": 0.0,
    },
    "snli": {
        "trainer.num_epochs": 40,
        "trainer.optimizer.lr": 0.0015,
        "trainer.learning_rate_scheduler": None,
        "model.dropout": 0.0,
    },
    "squad": {"trainer.optimizer.lr": 0.01},
    "imdb": {"trainer.optimizer.lr": 0.01},
    "chunking": {"trainer.optimizer.lr": 0.01},
    "ner": {"trainer.optimizer.lr": 0.01},
}


@pytest.fixture(scope="module", autouse=True)
def _task_models() -> None:
    """As the command line does: allennlp_models is a plugin."""
    import_plugins()


@pytest.fixture(scope="module")
def elmo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elmo")
    write_random_elmo(folder, projection_dim=ELMO_DIM // 2)
    return folder


@pytest.fixture
def load(
    elmo: Path, tmp_path: Path, repository_root: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """A function from a config's folder, name, ... to its parameters."""

    def params(
        folder: str, name: str, variable: str, data: str, dim: int, overrides: Dict[str, Any]
    ) -> Params:
        glove = tmp_path / "glove.txt"
        glove.write_text(
            "".join(f"{word}{' 0.1' * dim}\n" for word in ("film", "sold", "sack", "sacks", "mill"))
        )
        monkeypatch.setenv("GLOVE", str(glove))
        monkeypatch.setenv("ELMO", str(elmo))
        for split in ("TRAIN", "VALIDATION"):
            monkeypatch.setenv(f"{variable}_{split}_DATA_PATH", str(FIXTURES / data))
        path = repository_root / "training_config" / folder / f"{name}.jsonnet"
        return Params.from_file(str(path), json.dumps(overrides))

    yield params


@pytest.fixture
def evalb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """AllenNLP's EVALB, in a place where it may be compiled."""
    if shutil.which("gcc") is None or shutil.which("make") is None:
        pytest.skip("EVALB needs gcc and make")
    return shutil.copytree(evalb_bracketing_scorer.DEFAULT_EVALB_DIR, tmp_path / "evalb")


@pytest.mark.parametrize("suffix", ["", "_elmo"])
@pytest.mark.parametrize("task", TASKS, ids=IDS)
def test_trains_archives_and_evaluates(
    task: Any, suffix: str, load: Any, elmo: Path, tmp_path: Path, request: Any
) -> None:
    folder, name, variable, data, dim, metric = task
    if folder == "srl" and shutil.which("perl") is None:
        pytest.skip("srl-eval.pl needs perl")
    overrides = {
        "trainer.num_epochs": 8,
        "trainer.patience": None,
        "trainer.checkpointer": {"keep_most_recent_by_count": 1},
        **CHANGES.get(folder, {}),
    }
    if folder == "constituency":
        overrides["model.evalb_directory_path"] = str(request.getfixturevalue("evalb"))
    params = load(folder, f"{name}{suffix}", variable, data, dim, overrides)
    assert params["trainer"]["validation_metric"] == f"+{metric}"
    # Carried states would make the validation in training differ from that of the archive.
    for _, section in elmo_sections(params.params):
        section["initial_state"] = "settled"

    num_epochs = params["trainer"]["num_epochs"]
    losses: List[float] = []
    train_model(params, str(tmp_path / "model"))
    for epoch in range(num_epochs):
        path = tmp_path / "model" / f"metrics_epoch_{epoch}.json"
        losses.append(json.loads(path.read_text(encoding="utf-8"))["validation_loss"])
    assert losses[-1] < 0.97 * losses[0], losses

    archive = str(tmp_path / "model" / "model.tar.gz")
    metrics = evaluate_from_archive(archive, str(FIXTURES / data))
    expected = json.loads((tmp_path / "model" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics[metric] == pytest.approx(expected[f"best_validation_{metric}"], abs=1e-6)
    assert 0 <= metrics[metric] <= 1
    if folder in OFFICIAL_SCORES:
        assert 0 <= metrics[OFFICIAL_SCORES[folder]] <= 100
    if suffix:
        _check_elmo(load_archive(archive), elmo)


@pytest.mark.parametrize("task", TASKS, ids=IDS)
def test_elmo_changes_nothing_else(task: Any, load: Any) -> None:
    folder, name, variable, data, dim, _ = task
    baseline, elmo = (
        load(folder, f"{name}{suffix}", variable, data, dim, {}).as_dict()
        for suffix in ("", "_elmo")
    )
    assert '"elmo' not in json.dumps(baseline) and baseline != elmo
    assert _without_elmo(baseline) == _without_elmo(elmo)


def _without_elmo(value: Any) -> Any:
    """A config without the keys of ELMo; sizes modulo ELMo's."""
    if not isinstance(value, dict):
        return value
    if value.get("type") == "elmo_output":
        return _without_elmo(value["encoder"])
    result = {}
    for key, item in value.items():
        if key in ("input_size", "input_dim", "tensor_1_dim", "tensor_2_dim"):
            result[key] = item % ELMO_DIM
        elif "elmo" not in key and key not in ("regularizer", "num_highway_layers"):
            result[key] = _without_elmo(item)
    return result


def test_srl_with_the_model_of_5_5_billion_words(
    load: Any, elmo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def cached_path(address: str) -> str:
        if "://" not in address:
            return address
        asked.append(address)
        return str(elmo / "options.json")

    monkeypatch.setattr("allennlp_elmo_plugin.modules.elmo_files.cached_path", cached_path)
    arguments = ("SRL", "srl", 100, {})
    found = load("srl", "srl_elmo_5.5b", *arguments).as_dict()
    expected = load("srl", "srl_elmo", *arguments).as_dict()
    embedder = found["model"]["text_field_embedder"]["token_embedders"]["elmo"]
    assert embedder["options_file"] == embedder["weight_file"] == "original-5.5b"
    assert "5.5B_options.json" in asked[0]
    for name in ("options_file", "weight_file"):
        expected["model"]["text_field_embedder"]["token_embedders"]["elmo"][name] = "original-5.5b"
    assert found == expected


def _check_elmo(archive: Any, elmo: Path) -> None:
    """The layers are those of the files; the scalar mixes, and they alone, are trained."""
    model: Model = archive.model
    found = [module for module in model.modules() if isinstance(module, Elmo)]
    assert len(found) == 1
    (module,) = found
    original = Elmo(str(elmo / "options.json"), str(elmo / "weights.hdf5"), 1)._elmo_lstm
    originals = dict(original.named_parameters())
    for name, parameter in module._elmo_lstm.named_parameters():
        assert torch.equal(parameter, originals[name])

    instances = list(archive.validation_dataset_reader.read(_validation_path(archive)))
    batch = Batch(instances)
    batch.index_instances(model.vocab)
    tensors = batch.as_tensor_dict()
    model.train()
    output = model(**tensors)
    (output["loss"] + model.get_regularization_penalty()).backward()
    assert all(parameter.grad is None for parameter in module._elmo_lstm.parameters())
    for scalar_mix in module._scalar_mixes:
        weights = [parameter.item() for parameter in scalar_mix.scalar_parameters]
        assert len(set(weights)) == len(weights) and all(weights)
        for parameter in scalar_mix.parameters():
            assert parameter.grad is not None
            assert math.isfinite(parameter.grad.item()) and parameter.grad.item() != 0
    penalty = model.get_regularization_penalty()
    squares = [
        parameter.item() ** 2
        for scalar_mix in module._scalar_mixes
        for parameter in scalar_mix.scalar_parameters
    ]
    alpha = archive.config["model"]["regularizer"]["regexes"][0][1]["alpha"]
    assert penalty.item() == pytest.approx(alpha * np.sum(squares), rel=1e-4)


def _validation_path(archive: Any) -> str:
    return archive.config["validation_data_path"]
