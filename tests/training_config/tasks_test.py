"""The task configs, with a few sentences in the format of each task."""

import json
import math
from pathlib import Path

import pytest
import torch
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.plugins import import_plugins

from allennlp_elmo_plugin import Elmo
from tests.support.testing import write_random_elmo

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "tasks"
ELMO_DIM = 12
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


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elmo")
    write_random_elmo(folder, projection_dim=ELMO_DIM // 2)
    return folder


@pytest.fixture(scope="module")
def load(elmo, repository_root):
    """A function from a task to the parameters of one of its configs."""
    import_plugins()  # As the command line does: allennlp_models is a plugin.

    def params(task, suffix, **overrides):
        folder, name, variable, data, dim, _ = task
        glove = elmo / f"glove.{dim}.txt"
        words = ("film", "sold", "sack", "sacks", "mill")
        glove.write_text("".join(f"{word}{' 0.1' * dim}\n" for word in words))
        variables = {"GLOVE": str(glove), "ELMO": str(elmo)}
        for split in ("TRAIN", "VALIDATION"):
            variables[f"{variable}_{split}_DATA_PATH"] = str(FIXTURES / data)
        path = repository_root / "training_config" / folder / f"{name}{suffix}.jsonnet"
        return Params.from_file(path, json.dumps(overrides), variables)

    return params


@pytest.mark.parametrize("suffix", ["", "_elmo"])
@pytest.mark.parametrize("task", TASKS, ids=[task[0] for task in TASKS])
def test_config_makes_a_model_that_learns_from_its_data(task, suffix, load, elmo, tmp_path):
    """A step of training; of ELMo, the scalar mixes alone are trained."""
    overrides = {"model.encoder.num_layers": 2} if task[0] == "srl" else {}
    params = load(task, suffix, **overrides, **{"trainer.cuda_device": -1})
    assert params["trainer"]["validation_metric"] == f"+{task[-1]}"
    regularizer = params["model"].get("regularizer", {})
    kind = {"sst": "sst5"}.get(task[0], task[0])
    assert params.pop("evaluation").as_dict() == {"type": "official", "task": kind}
    loop = TrainModel.from_params(params, serialization_dir=str(tmp_path), local_rank=0)
    loop.model.train()
    outputs = loop.model(**next(iter(loop.trainer.data_loader)))
    (outputs["loss"] + (loop.model.get_regularization_penalty() or 0)).backward()
    assert math.isfinite(outputs["loss"].item())
    elmos = [module for module in loop.model.modules() if isinstance(module, Elmo)]
    assert len(elmos) == bool(suffix)
    for module in elmos:
        files = str(elmo / "options.json"), str(elmo / "weights.hdf5")
        original = dict(Elmo(*files, 1)._elmo_lstm.named_parameters())
        for name, parameter in module._elmo_lstm.named_parameters():
            assert torch.equal(parameter, original[name]) and parameter.grad is None
        mixes = [p for mix in module._scalar_mixes for p in mix.scalar_parameters]
        assert all(parameter.grad is not None for parameter in mixes)
        assert all(mix.gamma.grad.item() != 0 for mix in module._scalar_mixes)
        (_, rule) = regularizer["regexes"][0]
        with torch.no_grad():
            for parameter in mixes:
                parameter.fill_(2.0)
        expected = rule["alpha"] * 4 * len(mixes)
        assert loop.model.get_regularization_penalty().item() == pytest.approx(expected)


def test_a_parser_is_selected_without_allennlps_evalb(load, tmp_path, monkeypatch):
    """It omits sentences with brackets as words."""
    monkeypatch.setattr("allennlp.training.metrics.EvalbBracketingScorer.__call__", None)
    params = load(TASKS[6], "", **{"trainer.num_epochs": 1, "trainer.cuda_device": -1})
    params.pop("evaluation")
    loop = TrainModel.from_params(params, serialization_dir=str(tmp_path / "run"), local_rank=0)
    assert 0 <= loop.run()["best_validation_evalb_f1_measure"] <= 1


def test_srl_with_the_model_of_5_5_billion_words(load, elmo, monkeypatch):
    module = "allennlp_elmo_plugin.pretrained.find_model"
    monkeypatch.setattr(f"{module}.cached_path", lambda address: str(elmo / "options.json"))
    actual, expected = (load(TASKS[0], suffix).as_dict(True) for suffix in ("_elmo_5.5b", "_elmo"))
    embedder = expected["model"]["text_field_embedder"]["token_embedders"]["elmo"]
    embedder.update(options_file="original-5.5b", weight_file="original-5.5b")
    assert actual == expected
