import json
from pathlib import Path
from typing import Any

import pytest
from allennlp.common import Params, params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.modules.elmo_files import elmo_model
from tests.support.testing import write_random_elmo


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config of a user, in a folder of their own."""
    text = """
    local elmo = import 'elmo.libsonnet';
    elmo.added_to({
      dataset_reader: { token_indexers: { tokens: 'single_id' } },
      validation_dataset_reader: self.dataset_reader,
      model: {
        text_field_embedder: { token_embedders: { tokens: { type: 'embedding' } } },
        encoder: { type: 'lstm', input_size: 5 },
      },
    }, encoder='encoder')
    """
    (tmp_path / "config.jsonnet").write_text(text, encoding="utf-8")
    (tmp_path / "elmo").mkdir()
    return tmp_path / "config.jsonnet"


@pytest.mark.parametrize("projection_dim", [4, 7])
def test_sizes_follow_from_the_options(config: Path, projection_dim: int) -> None:
    options, weights = write_random_elmo(config.parent / "elmo", projection_dim=projection_dim)
    found = Params.from_file(config, ext_vars={"ELMO": str(config.parent / "elmo")}).as_dict()
    assert found["model"]["encoder"] == {"type": "lstm", "input_size": 5 + 2 * projection_dim}
    for reader in ("dataset_reader", "validation_dataset_reader"):
        assert found[reader]["token_indexers"]["elmo"] == {"type": "elmo_characters"}
    assert found["model"]["text_field_embedder"]["token_embedders"]["elmo"] == {
        "type": "elmo_token_embedder",
        "options_file": options,
        "weight_file": weights,
        "dropout": 0.5,
        "requires_grad": False,
    }
    assert found["model"]["regularizer"] == {
        "regexes": [["scalar_parameters", {"type": "l2", "alpha": 0.001}]]
    }


def test_settings(config: Path) -> None:
    write_random_elmo(config.parent / "elmo", projection_dim=4)
    text = config.read_text(encoding="utf-8")
    text = text.replace(
        "import 'elmo.libsonnet';", "(import 'elmo.libsonnet') { dropout:: 0.2, l2:: 1.0, "
        "initial_state:: 'zero' };"
    )  # fmt: skip
    text = text.replace("encoder='encoder'", "encoder='encoder', at_output=true")
    config.write_text(text, encoding="utf-8")
    found = Params.from_file(config, ext_vars={"ELMO": str(config.parent / "elmo")}).as_dict()
    embedder = found["model"]["text_field_embedder"]["token_embedders"]["elmo"]
    assert embedder["type"] == "elmo_token_embedder"
    assert embedder["num_output_representations"] == 2
    assert embedder["dropout"] == 0.2 and embedder["initial_state"] == "zero"
    assert found["model"]["regularizer"]["regexes"][0][1]["alpha"] == 1.0
    assert found["model"]["encoder"] == {
        "type": "elmo_output",
        "elmo_dim": 8,
        "encoder": {"type": "lstm", "input_size": 13},
    }


def test_short_names_stay_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, _ = write_random_elmo(tmp_path, projection_dim=4)
    monkeypatch.setattr(
        "allennlp_elmo_plugin.modules.elmo_files.cached_path",
        lambda address: {"small": options}.get("small") if "2x1024" in address else address,
    )
    assert elmo_model("small") == {"options_file": "small", "weight_file": "small", "dim": 8}


def test_a_file_beside_the_config_wins(config: Path) -> None:
    (config.parent / "ner").mkdir()
    (config.parent / "ner" / "ner.jsonnet").write_text("1", encoding="utf-8")
    text = "{ a: import 'ner/ner.jsonnet', b: (import 'snli/esim.jsonnet').model.type }"
    config.write_text(text, encoding="utf-8")
    assert Params.from_file(config).as_dict() == {"a": 1, "b": "esim"}


@pytest.mark.parametrize("trainable", [True, False])
def test_word_vectors(config: Path, trainable: bool) -> None:
    text = f"(import 'data.libsonnet').word_vectors(50, trainable={json.dumps(trainable)})"
    config.write_text(text, encoding="utf-8")
    expected = {"type": "embedding", "embedding_dim": 50, "trainable": True}
    assert Params.from_file(config, ext_vars={"GLOVE": ""}).as_dict() == expected
    expected.update(pretrained_file="vectors.txt", trainable=trainable)
    assert Params.from_file(config, ext_vars={"GLOVE": "vectors.txt"}).as_dict() == expected


def test_data_have_a_default_or_must_be_set(config: Path) -> None:
    text = (
        "local data = import 'data.libsonnet'; { a: data.path('A_PATH'), b: data.public('B', 'x') }"
    )
    config.write_text(text, encoding="utf-8")
    found = Params.from_file(config, ext_vars={"A_PATH": "here"}).as_dict()
    assert found == {"a": "here", "b": "https://allennlp.s3.amazonaws.com/datasets/x"}
    assert Params.from_file(config, ext_vars={"A_PATH": "a", "B": "b"}).as_dict()["b"] == "b"
    with pytest.raises(RuntimeError, match="Set the environment variable A_PATH"):
        Params.from_file(config)


def test_variables_that_are_not_set(config: Path) -> None:
    text = "{ a: std.extVar('TRAIN_DATA_PATH'), b: std.extVar('B'), c: std.extVar('C') + '' }"
    config.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as raised:
        Params.from_file(config, ext_vars={"B": "b"})
    assert str(raised.value) == (
        f"{config} needs TRAIN_DATA_PATH in the environment: export TRAIN_DATA_PATH=..."
    )
    config.write_text("{ a: std.extVar('A'), b: error 'of the user' }", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="needs A in the environment: export A=..."):
        Params.from_file(config)
    with pytest.raises(RuntimeError, match="of the user"):
        Params.from_file(config, ext_vars={"A": "a"})


def test_a_folder_is_no_config(tmp_path: Path) -> None:
    """jsonnet would end the process."""
    with pytest.raises(ConfigurationError, match=f"{tmp_path} is a folder; give a file in it"):
        Params.from_file(tmp_path)


def test_arguments_are_those_of_jsonnet(tmp_path: Path) -> None:
    (tmp_path / "config.jsonnet").write_text("import 'elmo.libsonnet'", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "elmo.libsonnet").write_text("std.extVar('B')", encoding="utf-8")
    path, folder = str(tmp_path / "config.jsonnet"), str(tmp_path / "folder")
    for folders in (folder, [folder]):  # They come before the folder of this package.
        assert json.loads(params.evaluate_file(path, folders, ext_vars={"B": "c"})) == "c"
    assert json.loads(params.evaluate_snippet("", "{ a: 1 }")) == {"a": 1}


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("import 'elmo.libsonnet';", "(import 'elmo.libsonnet') { a:: 0.1 };", "no setting a"),
        ("encoder='encoder'", "encoder='encodr'", "no key .encodr.; there are encoder, text_field"),
        ("dataset_reader: {", "dataset_reader: {}, another: {", "dataset_reader has no token_ind"),
        ("self.dataset_reader", "{}", "validation_dataset_reader has no token_indexers"),
        ("text_field_embedder: {", "embedder: {", "model has no text_field_embedder"),
        # In the order of the alphabet.
        ("tokens: { type: 'embedding' } } }", "chars: { type: 'a' } } }", '"elmo" must come first'),
    ],
)
def test_misuse(old: str, new: str, message: str, config: Path) -> None:
    write_random_elmo(config.parent / "elmo", projection_dim=4)
    text = config.read_text(encoding="utf-8").replace(old, new)
    if "first" in message:
        text = text.replace("encoder='encoder'", "encoder='encoder', at_output=true")
    config.write_text(text, encoding="utf-8")
    with pytest.raises(RuntimeError, match=message):
        Params.from_file(config, ext_vars={"ELMO": str(config.parent / "elmo")})


@pytest.mark.parametrize("variables", [{}, {"ELMO": ""}])
def test_without_elmo(variables: Any, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELMO", raising=False)
    with pytest.raises(RuntimeError, match="Set the environment variable ELMO"):
        Params.from_file(config, ext_vars=variables)
    with pytest.raises(RuntimeError, match="options.json"):  # a folder without an ELMo
        Params.from_file(config, ext_vars={"ELMO": str(config.parent / "elmo")})
