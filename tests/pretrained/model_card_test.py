"""The card as its reader sees it; `elmo_export_test.py` has the cards of exports."""

import json

import torch

from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.pretrained.checkpoints.bilm_tf import BilmTf
from allennlp_elmo_plugin.pretrained.checkpoints.training_run import TrainingRun
from allennlp_elmo_plugin.pretrained.language_model import PretrainedLanguageModel
from allennlp_elmo_plugin.pretrained.model_card import model_card
from tests.support.bilm_tf import OPTIONS

METRICS = {f"training_{kind}perplexity": 50.04 for kind in ("", "forward_", "backward_")}
METRICS.update(best_validation_perplexity=120.55, best_validation_forward_perplexity=121)
CONFIG = {
    "model": {"options_file": "/home/me/options.json", "type": 'say "a/b"'},
    "dataset_reader": {"files": ["b/c/", "plain"], "n": 3},
    "train_data_path": "/home/me/text",
}
TABLES = """\
| Property | Value |
|---|---|
| LSTM layers | 2, in both directions |
| Cells of a layer and direction | 7 |
| Dimensions per token in each layer | 10 |
| Input | bytes of words, the first 48; embeddings of 3, convolutions [[1, 4], [3, 5]] (width, \
number), 1 highway layers |
| Parameters | 2,451 without the softmax |
| Size of the weights | 1.2 MB |
| Weights | weights.hdf5, float32 |
| Vocabulary | 4,321 words, which the softmax predicts |

| Text | both directions | forward | backward |
|---|---|---|---|
| training, last epoch | 50.0 | 50.0 | 50.0 |
| validation | 120.5 | 121.0 |  |""".split("\n\n")


def card(tmp_path, name, options_file="config.json", metrics=METRICS, **changes):
    """The card of an export from the files of a run."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    weights = tmp_path / "weights.hdf5"
    weights.write_bytes(b"0" * 1_250_000)
    options = BiLmOptions.from_dict({**OPTIONS[name], "n_tokens_vocab": 4321})
    softmax = Softmax(4321, 5, weight=torch.nn.Parameter(torch.zeros(4321, 5)))
    words = list(map(str, range(4321)))
    model = PretrainedLanguageModel("source", options, words, BiLm(options), softmax)
    layout = TrainingRun() if options_file == "config.json" else BilmTf()
    training = layout.read_training(layout.files("source", tmp_path / options_file, weights))
    return model_card("my elmo", model._replace(**changes), *training, weights, "float32")


def test_card_of_a_run(tmp_path):
    text = card(tmp_path, "characters")
    assert all(table in text for table in TABLES)
    # What leads to a file is left out.
    assert json.loads(text.split("```")[1].removeprefix("json")) == {
        "model": {"options_file": "options.json", "type": 'b"'},
        "dataset_reader": {"files": ["c", "plain"], "n": 3},
    }
    assert 'ElmoEmbedder("my elmo")' in text and "--model 'my elmo'" in text
    assert text.startswith("# ELMo: my elmo\n\nA ") and text.endswith("\n") and "home" not in text


def test_cards_of_a_model_without_a_run_and_of_one_of_words_that_diverged(tmp_path):
    text = card(tmp_path, "forward only", "options.json", words=None, softmax=None)
    assert "| LSTM layers | 2, forward only |" in text
    assert "| Vocabulary | none in the files |" in text
    assert "have no metrics.json)" in text and "have no config.json)" in text
    text = card(tmp_path, "characters", "options.json", softmax=None)
    assert "| Vocabulary | 4,321 words |" in text
    text = card(tmp_path, "tokens", metrics={"best_validation_perplexity": float("nan")})
    assert "| Input | words of the vocabulary |" in text
    assert "have no metrics.json)" in text and "have no config.json)" not in text
    assert "and the model\nreads characters, in two directions and with projections." in text
