import copy
import math
import shutil
from contextlib import contextmanager, nullcontext
from typing import Any, Dict, Iterator

import numpy as np
import pytest
import torch
import torch.distributed as dist
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.training import gradient_descent_trainer
from allennlp.training.optimizers import Optimizer

from allennlp_elmo_plugin.bilm.log_uniform_sampler import Samples
from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.modules import language_model_archive
from tests.support.bilm_tf import (
    OPTIONS,
    REFERENCE,
    drawn_samples,
    load_run,
    read_vocabulary,
    set_variables,
    variables,
)

TEXT = str(REFERENCE / "data" / "train.txt")
SMALL, TOKENS = OPTIONS["characters"], OPTIONS["tokens"]
SUFFIXES = {"forward": "", "backward": "_reverse"}


def read(vocab: Any, text: str = TEXT, **settings: Any) -> Iterator[Dict[str, torch.Tensor]]:
    reader = TruncatedBpttLmReader(**{"batch_size": 3, "num_steps": 4, **settings})
    loader = TruncatedBpttDataLoader(reader, text)
    loader.index_with(vocab)
    return iter(loader)


def of_run(options: Dict[str, Any]) -> Dict[str, Any]:
    """The settings of the reader of a run of bilm-tf."""
    return {
        "batch_size": options["batch_size"],
        "num_steps": options["unroll_steps"],
        "max_characters_per_token": 50 if "char_cnn" in options else None,
    }


@pytest.fixture
def vocab(tmp_path):
    return read_vocabulary(tmp_path / "vocabulary")


def fix_samples(model: Any, arrays: Dict[str, np.ndarray]) -> None:
    """Lets the sampler give the negatives that TensorFlow drew, in its order."""
    samples = []
    for step in range(30):
        for direction in SUFFIXES:
            drawn = drawn_samples(arrays, direction, step)
            counts = model.softmax.sampler.expected_count(*drawn).numpy()
            expected = arrays[f"samples/{direction}/sampled_expected_count"][step]
            np.testing.assert_allclose(counts, expected, rtol=2e-5)
            samples.append(drawn)
    model.softmax.sampler.sample = iter(samples).__next__


@pytest.mark.parametrize("run", ["train_charcnn", "train_charcnn_sampled", "train_tokens"])
def test_training_is_that_of_bilm_tf(run, vocab, tmp_path):
    options, arrays = load_run(run)
    model = BidirectionalLanguageModel(vocab, options=options)
    set_variables(model, arrays, "init")
    if "sampled" in run:
        fix_samples(model, arrays)
    optimizer = Optimizer.from_params(
        Params({"type": "adagrad", "lr": 0.2, "initial_accumulator_value": 1.0, "eps": 0.0}),
        model_parameters=list(model.named_parameters()),
    )
    # The text is smaller than 30 batches: bilm-tf begins again in the middle of one.
    shard = tmp_path / "twice.txt"
    with open(TEXT, encoding="utf-8") as text_file:
        shard.write_text(text_file.read() * 2, encoding="utf-8")
    model.train()
    for step, batch in zip(range(30), read(vocab, str(shard), **of_run(options))):
        for suffix in SUFFIXES.values():
            if "char_cnn" in options:
                expected = arrays[f"batch/tokens_characters{suffix}"][step] + 1
            else:
                expected = arrays[f"batch/token_ids{suffix}"][step]
            np.testing.assert_array_equal(batch[f"tokens{suffix}"], expected)
            expected = arrays[f"batch/next_token_id{suffix}"][step]
            np.testing.assert_array_equal(batch[f"targets{suffix}"], expected)
        optimizer.zero_grad()
        output = model(**batch)
        output["loss"].backward()
        norm = gradient_descent_trainer.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        keys = {"loss": "total_loss", **{f"{each}_loss": f"loss_{each}" for each in SUFFIXES}}
        for name, key in keys.items():
            assert output[name].item() == pytest.approx(float(arrays[key][step]), abs=2e-6)
        assert float(norm) == pytest.approx(float(arrays["grad_norm"][step]), rel=2e-6)
        for direction in SUFFIXES:
            for layer in range(2):
                state = model.bilm.lstm.part(model._carried[True].states, direction, layer)
                for name, values in zip("mc", state):
                    expected = arrays[f"state/{direction}/layer{layer}/{name}"][step]
                    np.testing.assert_allclose(values, expected, atol=3e-6)
    assert step == 29
    for name, values in variables(model):
        np.testing.assert_allclose(values, arrays[f"final/{name}"], atol=3e-6, err_msg=name)
    for parameter in model.parameters():
        parameter.data = optimizer.state[parameter]["sum"]
    for name, values in variables(model):
        # The carry gate's weights are the model's with the sign turned.
        np.testing.assert_allclose(abs(values), arrays[f"accum/{name}"], atol=3e-6, err_msg=name)


@pytest.mark.parametrize("run", ["train_charcnn", "train_tokens"])
@pytest.mark.parametrize("batch_size", [pytest.param(1, marks=pytest.mark.nightly), 4, 256])
def test_perplexity_is_that_of_bilm_tf(run, batch_size, vocab):
    options, arrays = load_run(run)
    model = BidirectionalLanguageModel(vocab, options=options).eval()
    set_variables(model, arrays, "final")
    settings = {**of_run(options), "batch_size": batch_size, "num_steps": 1}
    with torch.no_grad():
        losses = [
            float(model(**batch)["loss"])
            for batch in read(vocab, str(REFERENCE / "data" / "test.txt"), **settings)
        ]
    np.testing.assert_allclose(losses, arrays[f"test{batch_size}/loss"], atol=2e-6)
    expected = float(arrays[f"test{batch_size}/perplexity"])
    assert model.get_metrics(reset=True)["perplexity"] == pytest.approx(expected, rel=1e-6)
    assert math.exp(np.mean(losses)) == pytest.approx(expected, rel=1e-6)


def test_training_goes_on_from_a_checkpoint_of_bilm_tf(vocab, tmp_path):
    source = shutil.copytree(REFERENCE / "checkpoint", tmp_path / "checkpoint")
    shutil.copy(REFERENCE / "data" / "vocab.txt", source)
    run = tmp_path / "run"
    run.mkdir()
    settings = {"pretrained_file": str(source), "dropout": 0.3, "serialization_dir": str(run)}
    model = BidirectionalLanguageModel(vocab, **settings)
    _, arrays = load_run("train_charcnn")
    for name, values in variables(model):
        assert (values == arrays[f"final/{name}"]).all(), name
    assert all(parameter.requires_grad for parameter in model.parameters())
    # An archive of the run has its options, and AllenNLP leaves out the `pretrained_file`.
    again = BidirectionalLanguageModel(vocab, serialization_dir=str(run))
    assert again.options == model.options and again.options.dropout == 0.3


def evaluate(model, batches):
    with torch.no_grad():
        for batch in batches:
            model(**batch)
    return model.get_metrics(reset=True)


@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize("shape", [(3, 4), (7, 50), (1, 1000)])
def test_evaluation_counts_every_word_once(vocab, shape, contiguous):
    model = BidirectionalLanguageModel(vocab, options=TOKENS).eval()
    settings = {"drop_last": False, "max_characters_per_token": None, "contiguous": contiguous}
    settings.update(batch_size=shape[0], num_steps=shape[1])
    batches = list(read(vocab, **settings))
    metrics = evaluate(model, batches)
    assert model.n_predicted_words == 455
    assert model.get_metrics() == dict.fromkeys(metrics, 0.0) and model.n_predicted_words == 0
    for direction, suffix in SUFFIXES.items():
        targets = torch.cat([batch[f"targets{suffix}"].flatten() for batch in batches])
        assert int((targets != -100).sum()) == 455
        if shape[0] == 1:  # The whole text is one sequence.
            tokens = torch.cat([batch[f"tokens{suffix}"] for batch in batches], 1)
            tokens = tokens[:, targets != -100]
            output = model.bilm(tokens, tokens_reverse=tokens)
            logits = output.layers[direction][-1] @ model.softmax.weight.t() + model.softmax.bias
            loss = torch.nn.functional.cross_entropy(logits, targets[targets != -100]).item()
            found = metrics[f"{direction}_perplexity"]
            assert found == pytest.approx(math.exp(loss), rel=1e-5)
    both = math.sqrt(metrics["forward_perplexity"] * metrics["backward_perplexity"])
    assert metrics["perplexity"] == pytest.approx(both)
    metrics["loss"] = 1.0  # what AllenNLP sets
    assert metrics["loss"] == pytest.approx(math.log(both))


def test_every_evaluation_is_the_same(vocab):
    model = BidirectionalLanguageModel(vocab, options=SMALL).eval()
    batches = list(read(vocab, drop_last=False))
    first = evaluate(model, batches)
    # Broken off in the middle, and again from the start.
    evaluate(model, batches[:5])
    assert evaluate(model, batches) == first


def train(model, batches):
    losses = []
    for batch in batches:
        model.zero_grad()
        loss = model.train()(**batch)["loss"]
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad.to_dense()
    return losses


def test_training_goes_on_after_a_validation_and_in_another_process(vocab):
    batches = list(read(vocab))
    settings = {"dropout": 0.3, "num_samples": 12, "state_reset": 0.2}

    def make():
        torch.manual_seed(0)
        return BidirectionalLanguageModel(vocab, options=SMALL, **settings)

    model = make()
    whole, metrics = train(model, batches), model.get_metrics()
    model = make()
    first = train(model, batches[:9])
    state, random = model.training_state(), torch.get_rng_state()
    state, parameters = copy.deepcopy((state, model.state_dict()))
    perplexities = model.get_metrics(reset=True)
    evaluate(model.eval(), batches[:5])
    model = make()
    model.load_state_dict(parameters)
    model.load_training_state(state)
    torch.set_rng_state(random)
    assert model.get_metrics() == perplexities
    assert first + train(model, batches[9:]) == whole
    assert model.get_metrics() == metrics
    with pytest.raises(ConfigurationError, match="window 3 follows window"):
        model(**batches[3])


def test_gradient_is_that_of_the_sum_over_steps(vocab):
    model = BidirectionalLanguageModel(vocab, options=SMALL)
    batch = next(read(vocab))
    model(**batch)["loss"].backward()
    grad = model.softmax.bias.grad.clone()
    model.zero_grad()
    layers = model.bilm(batch["tokens"], tokens_reverse=batch["tokens_reverse"]).layers
    loss = 0
    for direction, suffix in SUFFIXES.items():
        packed = batch[f"targets{suffix}"].t().reshape(-1)
        loss = loss + model.softmax.loss(layers[direction][-1], packed) / 2
    loss.backward()
    torch.testing.assert_close(grad, 4 * model.softmax.bias.grad)


def test_reset_rows_start_from_zero(vocab):
    options = {"options": SMALL, "state_reset": 0.5}
    model = BidirectionalLanguageModel(vocab, **options)
    n_reset = 0
    for batch in list(read(vocab))[:6]:
        before = model._carried[True].states
        torch.manual_seed(batch["window"][0, 0])
        loss = model(**batch)["loss"].item()
        torch.manual_seed(batch["window"][0, 0])
        is_reset = torch.rand(3) < 0.5
        other = BidirectionalLanguageModel(vocab, options=SMALL)
        other.load_state_dict(model.state_dict())
        if before is not None:
            n_reset += is_reset.sum().item()
            kept = (~is_reset).float().unsqueeze(1)
            other._carried[True].states = tuple(part * kept for part in before)
        assert other(**{**batch, "window": None})["loss"].item() == loss
    assert 0 < n_reset < 15
    random_state = torch.get_rng_state()
    evaluate(model.eval(), read(vocab))
    assert torch.equal(random_state, torch.get_rng_state())


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("num_samples", [0, 12])
def test_every_kind_of_model_learns_its_text(vocab, name, num_samples):
    model = BidirectionalLanguageModel(vocab, options=OPTIONS[name], num_samples=num_samples)
    characters = 50 if model.options.char_cnn else None
    bidirectional = model.options.bidirectional
    settings = {"max_characters_per_token": characters, "bidirectional": bidirectional}
    (batch, *_) = read(vocab, **settings)
    sparse = {id(parameter) for parameter in model.sparse_gradient_parameters()}
    output = model(**batch)
    output["loss"].backward()
    for parameter in model.parameters():
        assert parameter.grad.is_sparse == (id(parameter) in sparse)
    directions = ["forward", "backward"] if bidirectional else ["forward"]
    losses = [output[f"{direction}_loss"].item() for direction in directions]
    assert set(output) == {"loss", *(f"{direction}_loss" for direction in directions)}
    assert output["loss"].item() == pytest.approx(np.mean(losses))
    expected = {f"{each}_perplexity": math.exp(loss) for each, loss in zip(directions, losses)}
    expected["perplexity"] = math.exp(np.mean(losses))
    assert model.get_metrics(reset=True) == pytest.approx(expected)
    tied = model.softmax.weight is getattr(model.bilm.token_layer, "weight", None)
    assert tied == (name == "tied")
    found = train(model, [{**batch, "window": None}] * 30)
    assert sum(found[-5:]) < 0.8 * sum(found[:5])


@pytest.mark.parametrize("many, expected", [(25, 25), (26, 0)])
def test_automatic_samples(vocab, monkeypatch, many, expected):
    """Of a vocabulary of 50 words."""
    monkeypatch.setattr(language_model_archive, "_MANY_SAMPLES", many)
    model = BidirectionalLanguageModel(vocab, options=SMALL, num_samples="auto")
    assert (model.softmax.sampler.n_samples if model.softmax.sampler else 0) == expected
    assert model.options.sample_softmax == bool(expected)


def test_options_of_dropout_reach_the_layers(vocab):
    settings = {"dropout": 0.2, "variational_dropout": True, "recurrent_dropout": 0.3}
    lstm = BidirectionalLanguageModel(vocab, options=SMALL, **settings).bilm.lstm
    assert lstm.dropout.p == 0.2 and lstm.variational_dropout and lstm.recurrent_dropout == 0.3
    lstm = BidirectionalLanguageModel(vocab, options=SMALL).bilm.lstm
    assert not (lstm.dropout.p or lstm.variational_dropout or lstm.recurrent_dropout)


@pytest.mark.parametrize("num_samples", [0, 20])
def test_precision_of_training(vocab, num_samples):
    """Evaluation has float32, and autocast changes neither."""
    (first, *_) = read(vocab)
    found = []
    for precision in ("float32", "bfloat16"):
        for autocast in (False, True):
            torch.manual_seed(1)
            settings = {"num_samples": num_samples, "precision": precision}
            model = BidirectionalLanguageModel(vocab, options=SMALL, **settings)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                losses = [model(**first)["loss"], model.eval()(**first)["loss"]]
            losses[0].backward()
            assert all(p.grad.dtype == torch.float32 for p in model.parameters())
            gradients = [parameter.grad.to_dense().norm() for parameter in model.parameters()]
            found.append((*(loss.item() for loss in losses), gradients))
    (exact, evaluated, _), (near, same, _) = found[0], found[2]
    assert found[0] == found[1] and found[2] == found[3] and evaluated == same
    assert near != exact and abs(near - exact) < 0.01 * exact


@contextmanager
def process_group() -> Iterator[None]:
    """A distributed training of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize("exhausted", SUFFIXES)
def test_a_stream_that_ends_before_the_other(vocab, exhausted, distributed, training):
    """The last window of shuffled sentences may have words for one direction alone."""
    model = BidirectionalLanguageModel(vocab, options=SMALL, num_samples=12).train(training)
    torch.manual_seed(0)
    model.softmax.sampler.sample = lambda: Samples(torch.arange(12), 30)
    batch = {**next(read(vocab)), "window": None}
    (other,) = SUFFIXES.keys() - {exhausted}
    expected = model(**batch)
    perplexity = model.get_metrics(reset=True)[f"{other}_perplexity"]
    state = model.bilm.lstm.part(model._carried[training].states, other, 0)[0]
    model._carried[training].reset()
    targets = f"targets{SUFFIXES[exhausted]}"
    batch[targets] = torch.full_like(batch[targets], -100)
    with process_group() if distributed else nullcontext():
        output = model(**batch)
    assert output[f"{other}_loss"].item() == pytest.approx(expected[f"{other}_loss"].item())
    assert output[f"{exhausted}_loss"] == 0
    assert model.get_metrics()[f"{other}_perplexity"] == pytest.approx(perplexity)
    found = model.bilm.lstm.part(model._carried[training].states, other, 0)[0]
    torch.testing.assert_close(found, state)
    if training:
        output["loss"].backward()
        for name, parameter in model.named_parameters():
            if f"{exhausted}_layer" in name:
                # Every process must have a gradient of each parameter that isn't sparse.
                assert parameter.grad is None or parameter.grad.abs().sum() == 0
                assert (parameter.grad is not None) or not distributed
            else:
                assert parameter.grad.to_dense().abs().sum() > 0


@pytest.mark.parametrize("trained", ["all", "softmax"])
def test_a_process_without_text_takes_part_in_a_step(vocab, trained):
    model = BidirectionalLanguageModel(vocab, options=SMALL, num_samples=12)
    if trained == "softmax":
        model.bilm.requires_grad_(False)
    batch = {**next(read(vocab)), "window": None}
    for suffix in SUFFIXES.values():
        batch[f"targets{suffix}"] = torch.full_like(batch[f"targets{suffix}"], -100)
    with process_group():
        loss = model(**batch)["loss"]
    loss.backward()
    assert loss == 0
    for parameter in model.bilm.parameters():
        assert (parameter.grad is None) == (trained == "softmax")
        assert parameter.grad is None or parameter.grad.abs().sum() == 0
    assert model.softmax.weight.grad is None
    assert len(model.sparse_gradient_parameters()) == 2


class TestBadInput:
    @pytest.mark.parametrize(
        "kwargs, message",
        [
            ({}, "needs options, options_file or pretrained_file"),
            ({"options": SMALL, "options_file": "x.json"}, "either options or options_file"),
            ({"options": SMALL, "num_samples": 50}, "50 distinct .* vocabulary of 50 words"),
            ({"options": SMALL, "dropout": 1.5}, '"dropout" must be'),
            ({"options": SMALL, "recurrent_dropout": 1.0}, "recurrent_dropout is 1.0; use a"),
            ({"options": SMALL, "state_reset": -0.1}, "state_reset is -0.1; use a number"),
            ({"options": SMALL, "state_reset": "1"}, "state_reset is '1'; use a number"),
            ({"options": {"lstm": {}}}, '"lstm.dim" is missing'),
            ({"options": SMALL, "share_embedding_softmax": True}, "needs a token embedding"),
            ({"options": SMALL, "precision": "int8"}, "precision is 'int8'; use float32 or"),
            ({"pretrained_file": "nowhere"}, "nowhere"),
            ({"options_file": "nowhere.json"}, "nowhere.json"),
        ],
    )
    def test_arguments(self, vocab, kwargs, message):
        with pytest.raises(ConfigurationError, match=message):
            BidirectionalLanguageModel(vocab, **kwargs)

    @pytest.mark.parametrize(
        "options, reader, message",
        [
            (TOKENS, {}, "gives words of 50 characters, .* reads words of None"),
            (SMALL, {"max_characters_per_token": None}, "gives words of None .* reads words of 50"),
            (SMALL, {"max_characters_per_token": 20}, "gives words of 20 .* reads words of 50"),
            (SMALL, {"bidirectional": False}, "true in the model, but not in the reader"),
        ],
    )
    def test_reader_and_model_that_do_not_fit(self, vocab, options, reader, message):
        model = BidirectionalLanguageModel(vocab, options=options)
        with pytest.raises(ConfigurationError, match=message):
            model(**next(read(vocab, **reader)))

    def test_order(self, vocab):
        model = BidirectionalLanguageModel(vocab, options=SMALL)
        first, second, third, *_ = read(vocab)
        model(**first)
        with pytest.raises(ConfigurationError, match="window 2 follows window 0"):
            model(**third)
        model.eval()(**first)

    def test_options_file(self, vocab, tmp_path):
        path = tmp_path / "options.json"
        path.write_text('{"lstm": {"dim": 8, "projection_dim": 16}}')
        with pytest.raises(ConfigurationError, match="options.json: .* must not exceed"):
            BidirectionalLanguageModel(vocab, options_file=str(path))
