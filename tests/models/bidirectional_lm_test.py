import math
from typing import Any, Dict

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.training import gradient_descent_trainer
from allennlp.training.optimizers import Optimizer

from allennlp_elmo_plugin.bilm.log_uniform_sampler import Samples
from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.modules import language_model_archive
from tests.support.bilm_tf import REFERENCE, load_run, read_vocabulary, set_variables, variables

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
                state = model.bilm.lstm.part(model._carried[True].states, direction, layer)
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


SMALL = {
    "char_cnn": {"embedding": {"dim": 3}, "filters": [[1, 4], [3, 5]], "n_highway": 1},
    "lstm": {
        "dim": 7,
        "projection_dim": 5,
        "n_layers": 2,
        "cell_clip": 3,
        "proj_clip": 3,
        "use_skip_connections": True,
    },
    "n_negative_samples_batch": 12,
}
TOKENS = {key: value for key, value in SMALL.items() if key != "char_cnn"}


@pytest.fixture
def vocab(tmp_path):
    return read_vocabulary(tmp_path / "vocabulary")


def _batches(vocab, text=TEXT, **kwargs):
    reader = TruncatedBpttLmReader(**{"batch_size": 3, "num_steps": 4, **kwargs})
    loader = TruncatedBpttDataLoader(reader, text)
    loader.index_with(vocab)
    return list(loader)


def _run(model, batches):
    with torch.no_grad():
        for batch in batches:
            model(**batch)
    return model.get_metrics(reset=True)


class TestEvaluation:
    @pytest.mark.parametrize("contiguous", [False, True])
    @pytest.mark.parametrize("shape", [(1, 1), (3, 4), (7, 50), (1, 1000)])
    def test_every_pair_counts_once(self, vocab, shape, contiguous):
        """Whole sentences through `BiLm` itself, each from the state that the last one left."""
        model = BidirectionalLanguageModel(vocab, options=TOKENS).eval()
        batch_size, num_steps = shape
        batches = _batches(
            vocab,
            batch_size=batch_size,
            num_steps=num_steps,
            drop_last=False,
            max_characters_per_token=None,
            contiguous=contiguous,
        )
        n_pairs = 455
        metrics = _run(model, batches)
        for metric in model._perplexities.values():
            assert metric.n_tokens == 0
        totals = {"": 0, "_reverse": 0}
        for batch in batches:
            for suffix in totals:
                totals[suffix] += int((batch[f"targets{suffix}"] != -100).sum())
        assert totals == {"": n_pairs, "_reverse": n_pairs}
        if batch_size > 1:
            return
        # One row: the whole text is one sequence.
        with torch.no_grad():
            losses = {}
            for suffix, direction in (("", "forward"), ("_reverse", "backward")):
                tokens, targets = (
                    torch.cat([batch[f"{name}{suffix}"] for batch in batches], 1)
                    for name in ("tokens", "targets")
                )
                keep = targets[0] != -100
                hidden = model.bilm.token_layer(tokens[0][keep])
                lengths = torch.tensor([n_pairs])
                output = model.bilm(
                    tokens[:, keep],
                    lengths,
                    tokens_reverse=tokens[:, keep],
                    lengths_reverse=lengths,
                )
                hidden = output.layers[direction][-1]
                logits = hidden @ model.softmax.weight.t() + model.softmax.bias
                losses[direction] = torch.nn.functional.cross_entropy(
                    logits, targets[0][keep]
                ).item()
        for direction, loss in losses.items():
            assert metrics[f"{direction}_perplexity"] == pytest.approx(math.exp(loss), rel=1e-5)
        expected = math.exp(sum(losses.values()) / 2)
        assert metrics["perplexity"] == pytest.approx(expected, rel=1e-5)

    def test_every_pass_is_the_same(self, vocab):
        model = BidirectionalLanguageModel(vocab, options=SMALL).eval()
        batches = _batches(vocab, drop_last=False)
        first = _run(model, batches)
        # Broken off in the middle, and again from the start.
        _run(model, batches[:5])
        assert _run(model, batches) == first

    def test_in_the_middle_of_training_it_changes_nothing(self, vocab):
        batches = _batches(vocab)
        losses = []
        for validate in (False, True):
            torch.manual_seed(0)
            model = BidirectionalLanguageModel(vocab, options={**SMALL, "dropout": 0.3})
            optimizer = torch.optim.Adagrad(model.parameters(), 0.1)
            losses.append([])
            for index, batch in enumerate(batches):
                model.train()
                optimizer.zero_grad()
                loss = model(**batch)["loss"]
                loss.backward()
                optimizer.step()
                losses[-1].append(loss.item())
                if validate and index % 7 == 3:
                    model.eval()
                    _run(model, batches[:9])
        assert losses[0] == losses[1]

    def test_held_out_text_smaller_than_a_batch(self, vocab, tmp_path):
        path = tmp_path / "one.txt"
        path.write_text("the cat", encoding="utf-8")
        model = BidirectionalLanguageModel(vocab, options=SMALL).eval()
        batches = _batches(vocab, str(path), batch_size=20, num_steps=2, drop_last=False)
        metrics = _run(model, batches)
        assert 1 < metrics["perplexity"] < 1000
        assert model.get_metrics()["perplexity"] == 0.0


class TestTraining:
    def test_states_are_carried_without_gradient(self, vocab):
        model = BidirectionalLanguageModel(vocab, options=SMALL)
        first, second, *_ = _batches(vocab)
        model(**first)
        carried = model(**second)["loss"]
        carried.backward()
        for part in model._carried[True].states:
            assert not part.requires_grad
            assert part.abs().sum(2).all()
        other = BidirectionalLanguageModel(vocab, options=SMALL)
        other.load_state_dict(model.state_dict())
        torch.manual_seed(0)
        fresh = other(**{**second, "window": None})["loss"]
        torch.manual_seed(0)
        again = model(**{**first, "window": None})["loss"]
        assert fresh.item() != pytest.approx(carried.item(), abs=1e-6) and again.item() > 0

    def test_gradient_is_that_of_all_steps(self, vocab):
        model = BidirectionalLanguageModel(vocab, options=SMALL, num_samples=0)
        batch = _batches(vocab)[0]
        model(**batch)["loss"].backward()
        grad = model.softmax.bias.grad.clone()
        model.zero_grad()
        for carried in model._carried.values():
            carried.reset()
        layers = model.bilm(batch["tokens"], tokens_reverse=batch["tokens_reverse"]).layers
        loss = 0
        for direction, targets in (("forward", "targets"), ("backward", "targets_reverse")):
            packed = batch[targets].t().reshape(-1)
            loss = loss + model.softmax.loss(layers[direction][-1], packed) / 2
        loss.backward()
        torch.testing.assert_close(grad, 4 * model.softmax.bias.grad)

    @pytest.mark.parametrize("direction", ["forward", "backward"])
    def test_dropout_is_on_every_layers_input_and_the_last_output(self, vocab, direction):
        model = BidirectionalLanguageModel(vocab, options={**SMALL, "dropout": 0.4})
        seen = []

        class RecordingDropout(torch.nn.Dropout):
            def forward(self, vectors):
                seen.append(vectors.detach().clone())
                return vectors

        assert model.bilm.lstm.dropout.p == 0.4
        model.bilm.lstm.dropout = RecordingDropout(0.4)
        batch = _batches(vocab)[0]
        model(**batch)
        for carried in model._carried.values():
            carried.reset()
        layers = model.bilm(batch["tokens"], tokens_reverse=batch["tokens_reverse"]).layers
        # Inputs of both layers of both directions, then the outputs before the softmax.
        expected = [*layers["forward"][:2], *layers["backward"][:2]]
        expected += [layers["forward"][2], layers["backward"][2]]
        assert len(seen) == 6 + 4
        for vectors, layer in zip(seen, expected):
            torch.testing.assert_close(vectors, layer.detach())

    def test_reset_rows_start_from_zero(self, vocab):
        model = BidirectionalLanguageModel(vocab, options=SMALL, num_samples=0, state_reset=0.5)
        batches = _batches(vocab)[:6]
        expected_rows = []
        for batch in batches:
            before = model._carried[True].states
            torch.manual_seed(batch["window"][0, 0])
            loss = model(**batch)["loss"].item()
            torch.manual_seed(batch["window"][0, 0])
            is_reset = torch.rand(3) < 0.5
            expected_rows.append(is_reset.sum().item() if before else 0)
            other = BidirectionalLanguageModel(vocab, options=SMALL, num_samples=0)
            other.load_state_dict(model.state_dict())
            kept = (~is_reset).float().unsqueeze(1)
            if before is not None:
                other._carried[True].states = tuple(part * kept for part in before)
            assert other(**{**batch, "window": None})["loss"].item() == loss
        assert 0 < sum(expected_rows) < 15
        model.eval()
        _run(model, batches[:2])
        random_state = torch.get_rng_state()
        _run(model, batches[2:3])
        assert torch.equal(random_state, torch.get_rng_state())

    def test_options_of_dropout_reach_the_layers(self, vocab):
        model = BidirectionalLanguageModel(
            vocab, options=SMALL, dropout=0.2, variational_dropout=True, recurrent_dropout=0.3
        )
        lstm = model.bilm.lstm
        assert (lstm.dropout.p, lstm.variational_dropout, lstm.recurrent_dropout) == (
            0.2,
            True,
            0.3,
        )
        plain = BidirectionalLanguageModel(vocab, options=SMALL).bilm.lstm
        assert (plain.variational_dropout, plain.recurrent_dropout) == (False, 0.0)

    def test_sparse_gradients(self, vocab):
        batch = _batches(vocab, max_characters_per_token=None)[0]
        model = BidirectionalLanguageModel(vocab, options=TOKENS)
        model(**batch)["loss"].backward()
        for parameter in (model.softmax.weight, model.softmax.bias, model.bilm.token_layer.weight):
            assert parameter.grad.is_sparse

    @pytest.mark.parametrize("num_samples", [0, 12])
    def test_shared_softmax(self, vocab, num_samples):
        batch = _batches(vocab, max_characters_per_token=None)[0]
        options = {**TOKENS, "share_embedding_softmax": True}
        model = BidirectionalLanguageModel(vocab, options=options, num_samples=num_samples)
        assert model.softmax.weight is model.bilm.token_layer.weight
        optimizer = torch.optim.Adagrad(model.parameters(), 0.2)
        losses = []
        for _ in range(30):
            model._last_window[True] = None
            optimizer.zero_grad()
            loss = model(**batch)["loss"]
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert sum(losses[-5:]) < 0.7 * sum(losses[:5])

    @pytest.mark.parametrize("options", [SMALL, TOKENS])
    def test_forward_only(self, vocab, options):
        characters = 50 if "char_cnn" in options else None
        batches = _batches(vocab, bidirectional=False, max_characters_per_token=characters)
        assert "tokens_reverse" not in batches[0]
        model = BidirectionalLanguageModel(vocab, options=options, bidirectional=False)
        output = model(**batches[0])
        assert set(output) == {"loss", "forward_loss"}
        assert output["loss"].item() == output["forward_loss"].item()
        output["loss"].backward()
        metrics = model.get_metrics(reset=True)
        assert set(metrics) == {"perplexity", "forward_perplexity"}
        assert metrics["perplexity"] == metrics["forward_perplexity"]
        assert not any("backward" in name for name, _ in model.named_parameters())

    @pytest.mark.parametrize("many, expected", [(25, 25), (26, 0)])
    def test_automatic_samples(self, vocab, monkeypatch, many, expected):
        """Of a vocabulary of 50 words."""
        monkeypatch.setattr(language_model_archive, "_MANY_SAMPLES", many)
        model = BidirectionalLanguageModel(vocab, options=SMALL, num_samples="auto")
        assert (model.softmax.sampler.n_samples if model.softmax.sampler else 0) == expected
        assert model.options.sample_softmax == bool(expected)

    @pytest.mark.parametrize("num_samples, times", [(12, 1), (0, 0)])
    def test_says_once_that_sampled_perplexities_are_not_comparable(
        self, vocab, num_samples, times, caplog
    ):
        model = BidirectionalLanguageModel(vocab, options=SMALL, num_samples=num_samples)
        for batch in _batches(vocab)[:2]:
            model(**batch)
        assert caplog.text.count("do not compare them with those of validation") == times

    @pytest.mark.parametrize("num_samples", [0, 20])
    def test_bfloat16(self, vocab, num_samples):
        (first, *_) = _batches(vocab)
        losses = []
        for precision in ("float32", "bfloat16"):
            torch.manual_seed(1)
            model = BidirectionalLanguageModel(
                vocab,
                options={**SMALL, "dropout": 0.0},
                num_samples=num_samples,
                precision=precision,
            )
            losses.append([model(**first)["loss"], model.eval()(**first)["loss"]])
            losses[-1][0].backward()
            assert all(p.grad.dtype == torch.float32 for p in model.parameters())
        (exact, exact_evaluation), (near, evaluation) = losses
        assert near != exact
        assert abs(near - exact) < 0.01 * exact
        assert evaluation == exact_evaluation

    @pytest.mark.parametrize("num_samples", [0, 20])
    @pytest.mark.parametrize("precision", ["float32", "bfloat16"])
    def test_autocast_changes_nothing(self, vocab, num_samples, precision):
        batches = _batches(vocab)[:2]
        runs = []
        for autocast in (False, True):
            torch.manual_seed(1)
            model = BidirectionalLanguageModel(
                vocab, options=SMALL, num_samples=num_samples, precision=precision
            )
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                losses = [model(**batch)["loss"] for batch in batches]
            # Outside, as torch's documentation asks for.
            torch.stack(losses).sum().backward()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                losses.append(model.eval()(**batches[0])["loss"])
            assert all(loss.dtype == torch.float32 for loss in losses)
            gradients = [p.grad.to_dense() for p in model.parameters()]
            runs.append((losses, gradients, model.get_metrics()))
        (losses, gradients, metrics), (same_losses, same_gradients, same_metrics) = runs
        assert losses == same_losses and metrics == same_metrics
        for gradient, same in zip(gradients, same_gradients):
            assert torch.equal(gradient, same)


@pytest.mark.parametrize("exhausted", ["forward", "backward"])
@pytest.mark.parametrize("training", [True, False])
def test_a_stream_that_ends_before_the_other(vocab, exhausted, training):
    """The last window of shuffled sentences may have words for one direction alone."""
    options, _ = load_run("train_charcnn")
    model = BidirectionalLanguageModel(vocab, options={**options, "dropout": 0.0}).train(training)
    *_, batch = _batches(vocab)
    other = "backward" if exhausted == "forward" else "forward"
    expected = model(**batch)
    expected_perplexity = model.get_metrics(reset=True)[f"{other}_perplexity"]
    lstm, carried = model.bilm.lstm, model._carried[training]
    state, _ = lstm.part(carried.states, other, 0)
    carried.reset()
    model._last_window[training] = None
    targets = "targets" if exhausted == "forward" else "targets_reverse"
    output = model(**{**batch, targets: torch.full_like(batch[targets], -100)})
    assert output[f"{other}_loss"] == expected[f"{other}_loss"]
    assert output[f"{exhausted}_loss"] == 0
    assert model.get_metrics()[f"{other}_perplexity"] == expected_perplexity
    assert torch.equal(lstm.part(carried.states, other, 0)[0], state)
    if training:
        output["loss"].backward()
        layer = getattr(model.bilm.lstm, f"{other}_layer_0")
        assert layer.input_linearity.weight.grad.abs().sum() > 0


class TestBadInput:
    @pytest.mark.parametrize(
        "kwargs, message",
        [
            ({}, "needs options .* options_file or pretrained_file"),
            ({"options": SMALL, "options_file": "x.json"}, "either options or options_file"),
            ({"options": SMALL, "num_samples": 50}, "50 distinct .* vocabulary of 50 words"),
            ({"options": SMALL, "dropout": 1.5}, '"dropout" must be'),
            (
                {"options": SMALL, "recurrent_dropout": 1.0},
                "recurrent_dropout is 1.0; use a",
            ),
            ({"options": SMALL, "state_reset": -0.1}, "state_reset is -0.1; use a number"),
            ({"options": {"lstm": {}}}, '"lstm.dim" is missing'),
            ({"options": SMALL, "share_embedding_softmax": True}, "needs a token embedding"),
            ({"options": SMALL, "precision": "int8"}, "precision is 'int8'; use float32 or"),
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
            model(**_batches(vocab, **reader)[0])

    def test_order(self, vocab):
        model = BidirectionalLanguageModel(vocab, options=SMALL)
        first, second, third, *_ = _batches(vocab)
        shuffled = {name: values.flip(0) for name, values in first.items()}
        part = {name: values[:2] for name, values in first.items()}
        for batch in (shuffled, part):
            with pytest.raises(ConfigurationError, match="data loader changed the order"):
                model(**batch)
        model(**first)
        with pytest.raises(ConfigurationError, match="window 2 follows window 0"):
            model(**third)

    def test_options_file(self, vocab, tmp_path):
        path = tmp_path / "options.json"
        path.write_text('{"lstm": {"dim": 8, "projection_dim": 16}}')
        with pytest.raises(ConfigurationError, match="options.json: .* must not exceed"):
            BidirectionalLanguageModel(vocab, options_file=str(path))
