"""The card as its reader sees it; `elmo_export_test.py` has the cards of exports."""

import json
from pathlib import Path

import pytest
import torch

from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.models.model_card import Training, model_card
from allennlp_elmo_plugin.models.pretrained import PretrainedLanguageModel
from allennlp_elmo_plugin.modules.elmo_files import ModelFiles
from tests.support.bilm_tf import OPTIONS

METRICS = {f"training_{kind}perplexity": 50.04 for kind in ("", "forward_", "backward_")}
METRICS.update(best_validation_perplexity=120.55, best_validation_forward_perplexity=121)
CONFIG = {
    "model": {"options_file": "/home/me/options.json", "type": 'say "a/b"'},
    "dataset_reader": {"files": ["b/c/", "plain"], "n": 3},
    "train_data_path": "/home/me/text",
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "metrics.json").write_text(json.dumps(METRICS))
    (tmp_path / "weights.hdf5").write_bytes(b"0" * 1_250_000)
    return tmp_path


def card(name: str, folder: Path, options_file: str = "config.json", **changes: object) -> str:
    options = BiLmOptions.from_dict({**OPTIONS[name], "n_tokens_vocab": 4321})
    words = [str(i) for i in range(4321)]
    softmax = Softmax(4321, 5, weight=torch.nn.Parameter(torch.zeros(4321, 5)))
    model = PretrainedLanguageModel("source", options, words, BiLm(options), softmax)
    files = ModelFiles("source", folder / options_file, folder / "weights.hdf5")
    model = model._replace(**changes)
    return model_card("my elmo", model, Training.of(files), folder / "weights.hdf5", "float32")


def test_card_of_a_run(run: Path) -> None:
    lines = card("characters", run).split("\n")
    table = lines[lines.index("| Property | Value |") :]
    assert table[:10] == [
        "| Property | Value |",
        "|---|---|",
        "| LSTM layers | 2, in both directions |",
        "| Cells of a layer and direction | 7 |",
        "| Dimensions per token in each layer | 10 |",
        "| Input | bytes of words, the first 48; embeddings of 3, convolutions [[1, 4], [3, 5]] "
        "(width, number), 1 highway layers |",
        "| Parameters | 2,451 without the softmax |",
        "| Size of the weights | 1.2 MB |",
        "| Weights | weights.hdf5, float32 |",
        "| Vocabulary | 4,321 words, which the softmax knew in training |",
    ]
    table = lines[lines.index("| Text | both directions | forward | backward |") :]
    assert table[1:4] == [
        "|---|---|---|---|",
        "| training, last epoch | 50.0 | 50.0 | 50.0 |",
        "| validation | 120.5 | 121.0 |  |",
    ]
    text = "\n".join(lines)
    config = json.loads(text[text.index("```json") + 7 :].split("```")[0])
    # What leads to a file is left out.
    assert config == {
        "model": {"options_file": "options.json", "type": 'b"'},
        "dataset_reader": {"files": ["c", "plain"], "n": 3},
    }
    assert 'ElmoEmbedder("my elmo")' in text and "--options-file 'my elmo'" in text
    assert text.startswith("# ELMo: my elmo\n\nA ") and text.endswith("\n") and "home" not in text


def test_card_of_a_model_without_a_run(run: Path) -> None:
    text = card("forward only", run, "options.json", words=None, softmax=None)
    assert "| LSTM layers | 2, forward only |" in text
    assert "| Vocabulary | none in the files |" in text
    assert "have no metrics.json)" in text and "have no config.json)" in text
    assert "| Vocabulary | 4,321 words |" in card("characters", run, "options.json", softmax=None)


def test_card_of_a_model_of_words_that_diverged(run: Path) -> None:
    (run / "metrics.json").write_text('{"best_validation_perplexity": NaN}')
    text = card("tokens", run)
    assert "| Input | words of the vocabulary |" in text
    assert "have no metrics.json)" in text and "have no config.json)" not in text
    assert "`Elmo` does not read models of words. `allennlp elmo-import`" in text
    (run / "metrics.json").unlink()
    assert card("tokens", run) == text
