import signal

import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.exits import run_or_end
from allennlp_elmo_plugin.plugin.patches import jsonnet
from tests.support.testing import write_random_elmo

TEXT = """
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


@pytest.fixture
def evaluated(tmp_path):
    """Evaluate a config of a user, in a folder of their own, which has an ELMo."""
    (tmp_path / "elmo").mkdir()
    write_random_elmo(tmp_path / "elmo", projection_dim=4)

    def evaluate(text, **variables):
        (tmp_path / "config.jsonnet").write_text(text, encoding="utf-8")
        variables = {"ELMO": str(tmp_path / "elmo"), **variables}
        return Params.from_file(tmp_path / "config.jsonnet", ext_vars=variables).as_dict()

    return evaluate


def test_elmo_is_added_with_its_size(evaluated, tmp_path):
    options, weights = write_random_elmo(tmp_path / "elmo", projection_dim=7)
    elmo = {"type": "elmo_token_embedder", "options_file": options, "weight_file": weights}
    elmo.update(dropout=0.5, requires_grad=False)
    config = evaluated(TEXT)
    assert config["model"]["encoder"] == {"type": "lstm", "input_size": 5 + 2 * 7}
    for reader in ("dataset_reader", "validation_dataset_reader"):
        assert config[reader]["token_indexers"]["elmo"] == {"type": "elmo_characters"}
    assert config["model"]["text_field_embedder"]["token_embedders"]["elmo"] == elmo
    l2 = {"type": "l2", "alpha": 0.001}
    assert config["model"]["regularizer"] == {"regexes": [["scalar_parameters", l2]]}


def test_settings(evaluated):
    settings = "{ dropout:: 0.2, l2:: 1.0, initial_state:: 'zero' }"
    text = TEXT.replace("import 'elmo.libsonnet'", f"(import 'elmo.libsonnet') {settings}")
    model = evaluated(text.replace("='encoder'", "='encoder', at_output=true"))["model"]
    embedder = model["text_field_embedder"]["token_embedders"]["elmo"]
    assert embedder["num_output_representations"] == 2
    assert embedder["dropout"] == 0.2 and embedder["initial_state"] == "zero"
    assert model["regularizer"]["regexes"][0][1]["alpha"] == 1.0
    encoder = {"type": "lstm", "input_size": 13}
    assert model["encoder"] == {"type": "elmo_output", "elmo_dim": 8, "encoder": encoder}


@pytest.mark.parametrize(
    "text, variables, expected",
    [
        ("import 'ner/ner.jsonnet'", {}, "of the user"),
        ("(import 'snli/esim.jsonnet').model.type", {}, "esim"),
        ("data.path('A_PATH')", {"A_PATH": "here"}, "here"),
        ("data.public('B', 'x')", {}, "https://allennlp.s3.amazonaws.com/datasets/x"),
        ("data.public('B', 'x')", {"B": "b"}, "b"),
        ("data.word_vectors(50).trainable", {"GLOVE": ""}, True),
        ("data.word_vectors(50, trainable=false).trainable", {"GLOVE": ""}, True),
        ("data.word_vectors(50, trainable=false).trainable", {"GLOVE": "v.txt"}, False),
        ("data.word_vectors(50).pretrained_file", {"GLOVE": "v.txt"}, "v.txt"),
    ],
)
def test_what_configs_import(text, variables, expected, evaluated, tmp_path):
    (tmp_path / "ner").mkdir()
    (tmp_path / "ner" / "ner.jsonnet").write_text("'of the user'", encoding="utf-8")
    text = f"local data = import 'data.libsonnet'; {{ a: {text} }}"
    assert evaluated(text, **variables) == {"a": expected}


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
        (TEXT, "{ a: (import 'data.libsonnet').path('A_PATH') }", "Set the environment variable A"),
        (TEXT, "{ a: error 'of the user' }", "of the user"),
    ],
)
def test_misuse(old, new, message, evaluated):
    text = TEXT.replace(old, new)
    if "first" in message:
        text = text.replace("encoder='encoder'", "encoder='encoder', at_output=true")
    with pytest.raises(RuntimeError, match=message):
        evaluated(text)


def test_variables_that_are_not_set(evaluated, tmp_path):
    with pytest.raises(RuntimeError, match="Set the environment variable ELMO"):
        evaluated(TEXT, ELMO="")
    with pytest.raises(ConfigurationError) as raised:
        evaluated("{ a: std.extVar('B'), b: std.extVar('DATA_PATH') + '' }", B="b")
    assert str(raised.value) == (
        f"{tmp_path}/config.jsonnet needs DATA_PATH in the environment: export DATA_PATH=..."
    )


def test_ctrl_c_while_a_config_is_evaluated(evaluated, monkeypatch):
    """jsonnet makes errors of its own of all that its functions raise."""

    def read(name):
        signal.raise_signal(signal.SIGINT)

    def work():
        monkeypatch.setattr(jsonnet, "elmo_model", read)
        evaluated(TEXT)

    with pytest.raises(SystemExit, match=str(128 + signal.SIGINT)):
        run_or_end(work, str, str, 2)


def test_a_folder_is_no_config(tmp_path):
    """jsonnet would end the process."""
    with pytest.raises(ConfigurationError, match=f"{tmp_path} is a folder; give a file in it"):
        Params.from_file(tmp_path)
