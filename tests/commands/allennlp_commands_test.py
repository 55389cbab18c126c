"""AllenNLP's own commands with a language model, on a run of a few steps."""

import json
import logging
from pathlib import Path
from typing import Any, Dict, List

import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from tests.support.pretraining import write_text

READER = {"type": "truncated_bptt_lm", "batch_size": 4, "num_steps": 5}
CONFIG: Dict[str, Any] = {
    "dataset_reader": READER,
    "validation_dataset_reader": {**READER, "drop_last": False},
    "train_data_path": "train.txt",
    "validation_data_path": "validation.txt",
    "vocabulary": {"type": "from_files", "directory": "vocab/vocabulary"},
    "model": {
        "type": "bidirectional_lm",
        "num_samples": 0,
        "options": {
            "char_cnn": {"embedding": {"dim": 3}, "filters": [[1, 4], [3, 5]]},
            "lstm": {"dim": 7, "projection_dim": 5, "n_layers": 2},
        },
    },
    "data_loader": {"type": "truncated_bptt"},
    "trainer": {
        "num_epochs": 2,
        "validation_metric": "-perplexity",
        "optimizer": {"type": "adagrad", "lr": 0.2, "initial_accumulator_value": 1.0},
        "grad_norm": 10.0,
    },
}


def train(folder: str) -> None:
    """Train in a folder, and keep the handlers of logging, which AllenNLP replaces."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        train_model(Params.from_file("config.json"), folder)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, `config.json` and the folder `run` of its training."""
    folder = tmp_path_factory.mktemp("home")
    write_text(folder / "train.txt", seed=1, n_sentences=24)
    write_text(folder / "validation.txt", seed=2, n_sentences=4)
    make_vocabulary(folder / "train.txt", folder / "vocab")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        train("run")
    return folder


@pytest.fixture(autouse=True)
def inside(run: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def predict(run: Any, text: str, *arguments: str) -> List[Any]:
    Path("in.txt").write_text(text, encoding="utf-8")
    run("predict run/model.tar.gz in.txt --output-file out.jsonl", *arguments)
    return [json.loads(line) for line in Path("out.jsonl").read_text("utf-8").splitlines()]


def test_predict(run: Any, capsys: Any) -> None:
    plain = predict(run, 'word0 naïve\n\n  [ word1 ]\n"word2"\n3\n')
    words = [["word0", "naïve"], ["[", "word1", "]"], ['"word2"'], ["3"]]
    assert [each["tokens"] for each in plain] == words
    assert plain[0]["unknown"] == ["naïve"]
    lines = ['{"sentence": "word0 naïve"}', '{"tokens": ["word0", "naïve"]}', "word0 naïve"]
    assert predict(run, "\n".join(lines)) == [plain[0]] * 3
    (found,) = predict(run, '{"a": 1}\n', "--predictor-args", '{"plain_text": true}')
    assert found["tokens"] == ['{"a":', "1}"]
    with pytest.raises(ConfigurationError, match="is not a sentence: a line is its words"):
        predict(run, '{"sentence": 3}')


def test_find_lr(run: Any, tmp_path: Path) -> None:
    """More batches than an epoch has, so that the text starts again."""
    changes = {"trainer.optimizer": {"type": "dense_sparse_adam"}, "model.num_samples": 9}
    run("find-lr config.json --num-batches 11 -s", tmp_path, "-o", json.dumps(changes))
    assert (tmp_path / "lr-losses.png").stat().st_size > 1000


def test_count_instances(run: Any) -> None:
    with pytest.raises(ConfigurationError, match="makes batches, not instances"):
        run("count-instances config.json")


def test_build_vocab(run: Any, tmp_path: Path) -> None:
    output = str(tmp_path / "vocab.tar.gz")
    assert "Success! Vocab saved" in run("build-vocab config.json", output)
    built, made = map(Vocabulary.from_files, (output, "vocab/vocabulary"))
    assert built.get_index_to_token_vocabulary("lm_tokens") == made.get_index_to_token_vocabulary(
        "lm_tokens"
    )
