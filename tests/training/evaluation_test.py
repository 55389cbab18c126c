import json
import math

import pytest
import torch
from allennlp.common import Params
from allennlp.evaluation import Evaluator
from allennlp.training import util as training_util

from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.training.evaluation import LanguageModelEvaluator, metrics_table
from tests.support.bilm_tf import read_vocabulary

OPTIONS = {"lstm": {"dim": 6, "projection_dim": 4}}


@pytest.fixture
def model(tmp_path):
    vocab = read_vocabulary(tmp_path / "vocabulary")
    model = BidirectionalLanguageModel(vocab, options=OPTIONS, num_samples=0)
    torch.nn.init.normal_(model.softmax.bias)
    return model


@pytest.fixture
def loader(model, tmp_path):
    """Three batches, the last of which has a single word."""
    (tmp_path / "test.txt").write_text("the cat sat\n" * 4 + "dog\n", encoding="utf-8")
    reader = TruncatedBpttLmReader(4, 2, None, drop_last=False)
    loader = TruncatedBpttDataLoader(reader, str(tmp_path / "test.txt"))
    loader.index_with(model.vocab)
    return loader


def mean_of_batches(model, loader):
    losses = [model(**batch)["loss"].item() for batch in loader]
    model.get_metrics(reset=True)
    return sum(losses) / len(losses)


def assert_agree(metrics):
    assert math.exp(metrics["loss"]) == pytest.approx(metrics["perplexity"], rel=1e-12)


@pytest.mark.parametrize("way", ["evaluator", "util"])
def test_loss_agrees_with_perplexity(way, model, loader, tmp_path, capsys):
    model.eval()
    mean = mean_of_batches(model, loader)
    model.train()
    path = tmp_path / "metrics.json"
    if way == "evaluator":
        metrics = Evaluator.from_params(Params({}))(model, loader, metrics_output_file=path)
    else:
        metrics = training_util.evaluate(model, loader, output_file=str(path))
    assert_agree(metrics)
    assert abs(metrics["loss"] - mean) > 1e-4
    assert json.loads(path.read_text(encoding="utf-8")) == metrics
    bar = capsys.readouterr().err.split("loss: ")[-1]
    assert bar.startswith(f"{metrics['loss']:.2f}")


def test_an_evaluation_after_one_that_failed(model, loader):
    expected = LanguageModelEvaluator()(model, loader)
    model.eval()
    model(**next(iter(loader)))  # as one that ended after a batch
    assert LanguageModelEvaluator()(model, loader) == expected


def test_loss_of_validation(model, loader):
    model.eval()
    mean = mean_of_batches(model, loader)
    for batch in loader:
        model(**batch)
    for reset in (False, True):
        metrics = training_util.get_metrics(model, 3 * mean, None, None, None, 3, reset)
        assert_agree(metrics)
    model.train()  # where AllenNLP's loss is that of the sampled softmax, and of regularizers
    assert training_util.get_metrics(model, 6.0, None, None, None, 3)["loss"] == 2.0


def test_without_a_word(model):
    model.eval()
    assert training_util.get_metrics(model, 0.0, None, None, None, 0)["loss"] == 0.0


def test_results_are_printed(model, loader, capsys):
    metrics = LanguageModelEvaluator()(model, loader)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["test.txt"],
        ["perplexity", f"{metrics['perplexity']:.2f}"],
        ["forward_perplexity", f"{metrics['forward_perplexity']:.2f}"],
        ["backward_perplexity", f"{metrics['backward_perplexity']:.2f}"],
        ["loss", f"{metrics['loss']:.4f}"],
        ["predicted_words", "18"],
    ]


def test_table():
    columns = {"training": {"perplexity": 12345.678}, "test": {"perplexity": 7.0, "loss": 2.0}}
    assert metrics_table(columns) == (
        "             training    test\n"
        "perplexity  12,345.68    7.00\n"
        "loss                   2.0000"
    )
