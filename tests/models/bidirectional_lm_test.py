import math
from typing import Any, Dict

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.training import gradient_descent_trainer
from allennlp.training.optimizers import Optimizer

from allennlp_elmo_plugin.bilm.log_uniform_sampler import Samples
from allennlp_elmo_plugin.data.data_loaders import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.dataset_readers import TruncatedBpttLmReader
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from tests.bilm_tf import REFERENCE, load_run, read_vocabulary, set_variables, variables

RUNS = ["train_charcnn", "train_charcnn_sampled", "train_tokens"]
TEXT = str(REFERENCE / "data" / "train.txt")


def _reader(options: Dict[str, Any], **kwargs: Any) -> TruncatedBpttLmReader:
    return TruncatedBpttLmReader(
        **{
            "batch_size": options["batch_size"],
            "num_steps": options["unroll_steps"],
            "max_characters_per_token": 50 if "char_cnn" in options else None,
            **kwargs,
        }
    )


def _fix_samples(model: BidirectionalLanguageModel, arrays: Dict[str, np.ndarray]) -> None:
    """Lets the sampler give the negatives that TensorFlow drew, in its order."""
    sampler = model.softmax.sampler
    samples = []
    for step in range(30):
        for direction in ("forward", "backward"):
            ids = torch.from_numpy(arrays[f"samples/{direction}/ids"][step])
            counts = arrays[f"samples/{direction}/sampled_expected_count"][step]
            # The number of draws follows from how often the rarest word is expected.
            rarest = int(ids.argmax())
            p = math.log1p(1 / (float(ids[rarest]) + 1)) / math.log(51)
            num_tries = round(math.log1p(-float(counts[rarest])) / math.log1p(-p))
            found = sampler.expected_count(ids, num_tries).numpy()
            np.testing.assert_allclose(found, counts, rtol=2e-5)
            samples.append(Samples(ids, num_tries))
    sampler.sample = iter(samples).__next__


@pytest.mark.parametrize("run", RUNS)
def test_training_is_that_of_bilm_tf(run, tmp_path):
    options, arrays = load_run(run)
    vocab = read_vocabulary(tmp_path / "vocabulary")
    model = BidirectionalLanguageModel(vocab, options=options)
    set_variables(model, arrays, "init")
    if "sampled" in run:
        _fix_samples(model, arrays)
    optimizer = Optimizer.from_params(
        Params({"type": "adagrad", "lr": 0.2, "initial_accumulator_value": 1.0, "eps": 0.0}),
        model_parameters=list(model.named_parameters()),
    )
    # The text is smaller than 30 batches: bilm-tf begins again in the middle of one.
    shard = tmp_path / "twice.txt"
    with open(TEXT, encoding="utf-8") as text_file:
        shard.write_text(text_file.read() * 2, encoding="utf-8")
    loader = TruncatedBpttDataLoader(_reader(options), str(shard))
    loader.index_with(vocab)
    model.train()
    batches = iter(loader)
    for step in range(30):
        batch = next(batches)
        names = {"targets": "next_token_id", "targets_reverse": "next_token_id_reverse"}
        for suffix in ("", "_reverse"):
            if "char_cnn" in options:
                expected = arrays[f"batch/tokens_characters{suffix}"][step] + 1
            else:
                expected = arrays[f"batch/token_ids{suffix}"][step]
            np.testing.assert_array_equal(batch[f"tokens{suffix}"], expected)
            expected = arrays[f"batch/{names['targets' + suffix]}"][step]
            np.testing.assert_array_equal(batch[f"targets{suffix}"], expected)
        optimizer.zero_grad()
        output = model(**batch)
        output["loss"].backward()
        norm = gradient_descent_trainer.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        for name, key in (("loss", "total_loss"), ("forward_loss",) * 2, ("backward_loss",) * 2):
            key = {"forward_loss": "loss_forward", "backward_loss": "loss_backward"}.get(key, key)
            assert output[name].item() == pytest.approx(float(arrays[key][step]), abs=2e-6)
        assert float(norm) == pytest.approx(float(arrays["grad_norm"][step]), rel=2e-6)
        for direction in ("forward", "backward"):
            for layer in range(2):
                state = model._carried[True]._states[direction, layer]
                for name, values in zip("mc", state):
                    expected = arrays[f"state/{direction}/layer{layer}/{name}"][step]
                    np.testing.assert_allclose(values, expected, atol=3e-6)
    for name, values in variables(model):
        np.testing.assert_allclose(values, arrays[f"final/{name}"], atol=3e-6, err_msg=name)
    for parameter in model.parameters():
        parameter.data = optimizer.state[parameter]["sum"]
    for name, values in variables(model):
        # The carry gate's weights are the model's with the sign turned.
        np.testing.assert_allclose(abs(values), arrays[f"accum/{name}"], atol=3e-6, err_msg=name)


@pytest.mark.parametrize("run", ["train_charcnn", "train_tokens"])
@pytest.mark.parametrize("batch_size", [1, 4, 256])
def test_perplexity_is_that_of_bilm_tf(run, batch_size, tmp_path):
    options, arrays = load_run(run)
    vocab = read_vocabulary(tmp_path / "vocabulary")
    model = BidirectionalLanguageModel(vocab, options=options).eval()
    set_variables(model, arrays, "final")
    reader = _reader(options, batch_size=batch_size, num_steps=1)
    loader = TruncatedBpttDataLoader(reader, str(REFERENCE / "data" / "test.txt"))
    loader.index_with(vocab)
    with torch.no_grad():
        losses = [float(model(**batch)["loss"]) for batch in loader]
    np.testing.assert_allclose(losses, arrays[f"test{batch_size}/loss"], atol=2e-6)
    expected = float(arrays[f"test{batch_size}/perplexity"])
    assert model.get_metrics(reset=True)["perplexity"] == pytest.approx(expected, rel=1e-6)
    assert math.exp(np.mean(losses)) == pytest.approx(expected, rel=1e-6)
