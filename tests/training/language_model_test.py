"""
Training compared with runs of bilm-tf itself; where there is none, with a plain re-implementation
(`tests.support.naive_training`), which the same runs prove to be bilm-tf's.
"""

import copy
import itertools
import math
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.log_uniform_sampler import Samples
from allennlp_elmo_plugin.training import LanguageModel, TextBatches, Trainer, trainer
from tests.support.bilm_tf import OPTIONS, REFERENCE, WORDS, load_run, set_variables, variables
from tests.support.naive_training import NaiveTraining, Stream
from tests.support.process_group import run_processes
from tests.support.processor import needs_bfloat16

TEXT = REFERENCE / "data" / "train.txt"
SMALL, TOKENS = OPTIONS["characters"], OPTIONS["tokens"]
SUFFIXES = {"forward": "", "backward": "_reverse"}
VALUE = 3e-6  # the largest deviation of states, variables and accumulators
TOLERANCES = {
    **dict.fromkeys(("total_loss", "loss_forward", "loss_backward"), (2e-6, 0.0)),
    "grad": (2e-5, 0.0),  # of the largest of a variable in a step
    **dict.fromkeys(("grad_norm", "perplexity"), (0.0, 2e-6)),
    "batch": (0.0, 0.0),
}
"""Absolute and relative tolerances, by kind of array."""


def read(text=TEXT, **settings):
    return TextBatches(text, WORDS, **{"batch_size": 3, "num_steps": 4, **settings})


def of_run(options):
    """The settings of the text of a run of bilm-tf."""
    return {
        "batch_size": options["batch_size"],
        "num_steps": options["unroll_steps"],
        "max_characters_per_token": 50 if "char_cnn" in options else None,
        "bidirectional": options["bidirectional"],
    }


class RecordedDropout(torch.nn.Dropout):
    def __init__(self, p):
        super().__init__(p)
        self.masks: list[torch.Tensor] = []

    def forward(self, vectors):
        self.masks.append(super().forward(torch.ones_like(vectors)))
        return vectors * self.masks[-1]


def by_name(kind, model, values):
    """Values for the parameters, in their order."""
    probe = copy.deepcopy(model)
    for parameter, value in zip(probe.parameters(), values):
        parameter.data = value.detach().to_dense().clone()
    tied = model.options.share_embedding_softmax
    arrays = {name: v for name, v in variables(probe) if not (tied and name == "lm/softmax/W")}
    return {f"{kind}/{name}": values for name, values in arrays.items()}


def streams_of(model, batch, masks, samples):
    options = model.options
    n_rows, n_steps = batch["targets"].shape
    # The model packs the words by time.
    masks = [mask.view(n_steps, n_rows, options.projection_dim) for mask in masks]
    streams = {}
    for k, direction in enumerate(options.directions):
        suffix = SUFFIXES[direction]
        of_layers = masks[k * options.n_layers :][: options.n_layers]
        of_top = masks[len(options.directions) * options.n_layers + k].transpose(0, 1).flatten(0, 1)
        tokens = batch[f"tokens{suffix}"]
        streams[direction] = Stream(
            tokens if options.char_cnn is None else batch["character_ids"][tokens].long() - 1,
            batch[f"targets{suffix}"],
            samples[k] if samples else None,
            [*of_layers, of_top],
        )
    return streams


def stack(steps):
    return {name: np.stack([step[name] for step in steps]) for name in steps[0]}


def train(rank, options, folder, n_processes=1, arrays=None):
    """
    Take ten steps of one process of a group, or the thirty of bilm-tf's run with these arrays.
    Return the arrays by their names in the files of bilm-tf's runs, those of steps with one
    dimension more, and `grad/...`, the gradients of all steps; and the streams of each step.
    """
    torch.manual_seed(1)
    model = LanguageModel(options, WORDS)
    for parameter in model.parameters():
        # Larger than bilm-tf's initial values, so that no gradient is negligible. All processes
        # get the first one's.
        torch.nn.init.normal_(parameter, std=0.2 + rank)
    sampler, samples = model.softmax.sampler, []
    draw: Any = sampler and sampler.sample
    if arrays is not None:
        set_variables(model, arrays, "init")
        draw = samples_of_run(sampler, arrays).__next__
    # bilm-tf reads the text again from its start, in the middle of a batch.
    twice = folder / f"twice_{rank}.txt"
    twice.write_text(TEXT.read_text("utf-8") * 2, "utf-8")
    settings = {**of_run(options), "rank": rank, "world_size": n_processes}
    text = read(twice, **settings, batches_per_epoch=10 if arrays is None else 30)
    validation = read(TEXT, **settings, max_rows=n_processes * options["batch_size"])
    parts = model, text, validation, folder
    loop = Trainer(*parts, num_epochs=1, grad_norm=options["all_clip_norm_val"])
    dropout = model.bilm.lstm.dropout = RecordedDropout(options["dropout"])
    steps, streams, clip_grad_norm_ = [], [], trainer.clip_grad_norm_

    def note(model, _, batch, outputs):
        if not model.training:
            return
        step = {"total_loss": outputs["loss"].item()}
        streams.append(streams_of(model, batch, dropout.masks, samples))
        for direction, (tokens, targets, *_) in streams[-1].items():
            step[f"loss_{direction}"] = outputs[f"{direction}_loss"].item()
            key = "token_ids" if model.options.char_cnn is None else "tokens_characters"
            step[f"batch/{key}{SUFFIXES[direction]}"] = tokens
            step[f"batch/next_token_id{SUFFIXES[direction]}"] = targets
            for name, state in zip("mc", model._carried[True].states):
                (layers,) = model.bilm.lstm.part(state, [direction])
                for layer, values in enumerate(layers):
                    step[f"state/{direction}/layer{layer}/{name}"] = values.clone()
        steps.append(step)
        samples.clear()
        dropout.masks.clear()

    def clip(parameters, *args):
        sparse = {id(parameter) for parameter in model.sparse_gradient_parameters()}
        assert all(p.grad.is_sparse == (id(p) in sparse) for p in parameters)
        # Clipping changes them in place.
        steps[-1] |= by_name("grad", model, [parameter.grad for parameter in parameters])
        steps[-1]["grad_norm"] = clip_grad_norm_(parameters, *args)
        return steps[-1]["grad_norm"]

    if sampler is not None:
        sampler.sample = lambda: samples.append(draw()) or samples[-1]
    model.register_forward_hook(note, with_kwargs=True)
    initial = by_name("init", model, model.parameters())
    with patch.object(trainer, "clip_grad_norm_", clip):
        loop.train()
    sums = [loop.optimizer.state[parameter]["sum"] for parameter in model.parameters()]
    # The model has the carry gates with the opposite sign.
    accumulators = {k: abs(values) for k, values in by_name("accum", model, sums).items()}
    final = by_name("final", model, model.parameters())
    [metrics] = loop.epochs
    final["perplexity/total_loss"] = metrics["training_perplexity"]
    for direction in model.options.directions:
        final[f"perplexity/loss_{direction}"] = metrics[f"training_{direction}_perplexity"]
    return {**initial, **stack(steps), **final, **accumulators}, streams


def train_naively(options, initial, *streams):
    """The same training, with the same initial variables, batches and samples."""
    start = {name[5:]: values for name, values in initial.items() if name.startswith("init/")}
    naive = NaiveTraining(options, start)
    steps = stack([naive.step(replicas) for replicas in zip(*streams)])
    final = {f"final/{name}": values.detach() for name, values in naive.variables.items()}
    sums = {f"accum/{name}": values for name, values in naive.accumulators.items()}
    losses = {name: values for name, values in steps.items() if "loss" in name}
    of_epoch = {f"perplexity/{name}": math.exp(values.mean()) for name, values in losses.items()}
    return {**steps, **final, **sums, **of_epoch}


def assert_same_training(actual, expected, *left_out):
    for name, own in actual.items():
        kind = name.partition("/")[0]
        if kind in left_out:
            continue
        values, scale = np.asarray(expected[name]), 1.0
        if kind == "grad":
            scale = abs(values).max(tuple(range(1, values.ndim)), keepdims=True)
            assert (scale > 0).all(), name
        atol, rtol = TOLERANCES.get(kind, (VALUE, 0.0))
        np.testing.assert_allclose(own / scale, values / scale, atol=atol, rtol=rtol, err_msg=name)


def samples_of_run(sampler, arrays):
    """The negatives that TensorFlow drew, in its order."""
    for step, direction in itertools.product(range(30), SUFFIXES):
        ids = torch.from_numpy(arrays[f"samples/{direction}/ids"][step])
        expected = arrays[f"samples/{direction}/sampled_expected_count"][step]
        # How often it drew, from how often it expects the rarest.
        rarest = int(ids.argmax())
        p = np.log1p(1 / (float(ids[rarest]) + 1)) / np.log(sampler.n_words + 1)
        n_tries = round(float(np.log1p(-float(expected[rarest])) / np.log1p(-p)))
        counts = sampler.expected_count(ids, n_tries).numpy()
        np.testing.assert_allclose(counts, expected, rtol=2e-5)
        yield Samples(ids, n_tries)


@pytest.mark.parametrize("run", ["train_charcnn", "train_charcnn_sampled", "train_tokens"])
def test_training_is_that_of_bilm_tf(run, tmp_path):
    """The naive model is compared, too: it is the oracle of other models."""
    options, arrays = load_run(run)
    trained, streams = train(0, options, tmp_path, arrays=arrays)
    naive = train_naively(options, trained, streams)
    assert_same_training(trained, arrays, "grad", "perplexity")
    assert_same_training(naive, arrays, "grad", "perplexity")
    assert_same_training(naive, trained)
    if "sampled" not in run:
        for name in naive:
            if name.startswith("grad/"):
                gradient = arrays[name.replace("grad", "grad0")]
                np.testing.assert_allclose(naive[name][0], gradient, atol=VALUE)


BASES = {"characters": load_run("train_charcnn")[0], "words": load_run("train_tokens")[0]}
CLIPS = {"all_clip_norm_val": 0.5, "lstm": {"cell_clip": 0.05, "proj_clip": 0.02}}
TIED = {"share_embedding_softmax": True}
SAMPLED = {"sample_softmax": True}
CASES: list[tuple[int, str, dict[str, Any]]] = [
    (1, "characters", {"char_cnn": {"activation": "tanh", "n_highway": 2}}),
    (1, "characters", {"char_cnn": {"n_highway": 0}, "lstm": {"n_layers": 1}}),
    # Neither projections nor skip connections
    (1, "characters", {"char_cnn": {"filters": [[1, 2], [2, 2], [3, 4]]}}),
    (1, "characters", {"lstm": {"dim": 8, "use_skip_connections": False}}),
    (1, "characters", CLIPS),
    (1, "characters", {"lstm": {"cell_clip": None, "proj_clip": None, "n_layers": 3}}),
    (1, "characters", {"dropout": 0.25}),
    (1, "characters", {"bidirectional": False}),
    (1, "words", TIED),
    (1, "words", {**TIED, **SAMPLED}),
    (1, "words", {"bidirectional": False}),
    (1, "words", {"dropout": 0.25, **SAMPLED}),
    (2, "characters", {}),
    (2, "characters", SAMPLED),
    (2, "words", TIED),
    (2, "words", {**TIED, **SAMPLED}),
    (2, "words", {"dropout": 0.25, "bidirectional": False, **SAMPLED}),
]


@pytest.mark.parametrize("n_processes, base, changes", CASES, ids=str)
def test_training_is_the_naive_one(n_processes, base, changes, tmp_path):
    """Processes are bilm-tf's towers, with their own rows and samples, and averaged gradients."""
    options = dict(BASES[base])
    for key, value in changes.items():
        options[key] = {**options[key], **value} if isinstance(value, dict) else value
    if n_processes == 1:
        replicas = [train(0, options, tmp_path)]
    else:
        replicas = run_processes(n_processes, tmp_path, train, options, tmp_path, n_processes)
    runs, streams = zip(*replicas)
    expected = train_naively(options, runs[0], *streams)
    merged = {}
    for name, values in runs[0].items():
        of_all = [run[name] for run in runs]
        if "loss" in name:
            values = np.mean(of_all, 0)
        elif name.startswith("state"):
            values = np.concatenate(of_all, 1)
        elif name == "grad_norm" or name.startswith("final"):
            assert all((array == values).all() for array in of_all)
        merged[name] = values
    assert_same_training(expected, merged)
    if n_processes == 2 and streams[0][0]["forward"].samples is not None:
        for own, other in zip(*streams):
            assert not torch.equal(own["forward"].samples[0], other["forward"].samples[0])
    if changes is CLIPS:
        assert (expected["grad_norm"] > 0.5).all()
        for name, bound in (("c", 0.05), ("m", 0.02)):
            states = [v for k, v in expected.items() if k.startswith("state") and k[-1] == name]
            assert (abs(np.concatenate(states, 1)) == bound).mean() > 0.1


def few_words(rank, batch, n_rows):
    """The losses and the gradients of a process that has backward words in the first rows only."""
    torch.manual_seed(0)
    model = LanguageModel(TOKENS, WORDS)
    model.softmax.bias.requires_grad_(False)
    batch["targets_reverse"][n_rows[rank] :] = -100
    losses = model(**batch)
    losses["loss"].backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    kinds = {name: gradient.is_sparse for name, gradient in gradients.items()}
    return [value.item() for value in losses.values()], kinds


def test_processes_with_different_numbers_of_words(tmp_path):
    """Each word has the same weight, and each process the gradients that the others wait for."""
    batch = next(iter(read(max_characters_per_token=None)))
    results = run_processes(2, tmp_path, few_words, batch, [1, 0])
    (loss, forward, backward), kinds = few_words(0, batch, [1])
    expected = [loss + backward / 2, forward, 2 * backward], [forward / 2, forward, 0.0]
    for (losses, kinds_of_process), values in zip(results, expected):
        assert losses == pytest.approx(values) and kinds_of_process == kinds


def run(model, batches):
    """Losses of training, or of an evaluation."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        losses.append(loss.item())
        if model.training:
            loss.backward()
            optimizer.step()
    return losses


@pytest.mark.parametrize("name", ["train_charcnn", "train_tokens"])
@pytest.mark.parametrize("batch_size", [pytest.param(1, marks=pytest.mark.nightly), 4, 256])
def test_perplexity_is_that_of_bilm_tf(name, batch_size):
    options, arrays = load_run(name)
    model = LanguageModel(options, WORDS).eval()
    set_variables(model, arrays, "final")
    settings = {**of_run(options), "batch_size": batch_size, "num_steps": 1}
    with torch.no_grad():
        losses = run(model, read(REFERENCE / "data" / "test.txt", **settings))
    np.testing.assert_allclose(losses, arrays[f"test{batch_size}/loss"], atol=2e-6)
    expected = float(arrays[f"test{batch_size}/perplexity"])
    assert model.get_metrics(reset=True)["perplexity"] == pytest.approx(expected, rel=1e-6)
    assert model.n_predicted_words == batch_size * len(losses)


def test_training_goes_on_after_a_validation_and_in_another_process(caplog):
    batches = list(read())[:16]
    settings = {"dropout": 0.3, "variational_dropout": True, "recurrent_dropout": 0.2}
    settings.update(num_samples=12, state_reset=0.2)

    def make(*left_out):
        torch.manual_seed(0)
        kept = {name: value for name, value in settings.items() if name not in left_out}
        return LanguageModel(SMALL, WORDS, **kept)

    model = make()
    whole, metrics = run(model, batches), model.get_metrics()
    assert math.log(metrics["perplexity"]) == pytest.approx(np.mean(whole))
    words = torch.cat([batch["targets"].flatten() for batch in batches])
    assert metrics["unknown_words"] == sum(words == 2) / sum(words != 1) > 0
    assert "softmax over 12 samples" in caplog.text
    assert all(run(make(name), batches[:2]) != whole[:2] for name in settings)
    model = make()
    first, random = run(model, batches[:9]), torch.get_rng_state()
    state, parameters = copy.deepcopy((model.training_state(), model.state_dict()))
    model.get_metrics(reset=True)
    assert set(model.get_metrics().values()) == {0.0}  # without words
    evaluated = run(model.eval(), batches)
    run(model, batches[:5])  # an evaluation that was interrupted
    assert run(model, batches) == evaluated and torch.equal(torch.get_rng_state(), random)
    model = make()
    model.load_state_dict(parameters)
    model.load_training_state(state)
    torch.set_rng_state(random)
    with pytest.raises(ValueError, match="window 3 follows window 8"):
        model(**batches[3])
    assert first + run(model, batches[9:]) == whole and model.get_metrics() == metrics
    with pytest.raises(ValueError, match="window 15 follows window 15"):
        model(**batches[15])
    batches[0]["targets_reverse"][:] = -100  # The text has ended in this direction.
    outputs = model(**batches[0])
    assert outputs["backward_loss"] == 0 < outputs["forward_loss"] and outputs["loss"] > 0


@needs_bfloat16
@pytest.mark.parametrize("num_samples", [0, 20])
def test_precision_of_training(num_samples):
    """Evaluation is in float32, and autocast changes nothing."""
    batch = next(iter(read(batch_size=1)))
    results = []
    for precision, autocast in itertools.product(("float32", "bfloat16"), (False, True)):
        torch.manual_seed(1)
        settings = {"num_samples": num_samples, "precision": precision}
        model = LanguageModel(SMALL, WORDS, **settings)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss, evaluated = model(**batch)["loss"], model.eval()(**batch)["loss"]
        loss.backward()
        gradients = [parameter.grad.to_dense() for parameter in model.parameters()]
        assert all(gradient.dtype == torch.float32 for gradient in gradients)
        results.append((loss.item(), evaluated.item(), [gradient.norm() for gradient in gradients]))
    assert results[0] == results[1] and results[2] == results[3] and results[0][1] == results[2][1]
    assert 0 < abs(results[2][0] - results[0][0]) < 0.01 * results[0][0]


@pytest.mark.parametrize(
    "arguments, text, message",
    [
        ({"num_samples": 50}, {}, "50 distinct .* vocabulary of 50 words"),
        ({"recurrent_dropout": 1.0}, {}, "recurrent_dropout is 1.0; use a"),
        ({"state_reset": -0.1}, {}, "state_reset is -0.1; use a number"),
        ({"state_reset": None}, {}, "state_reset is None; it must be a number"),
        ({"share_embedding_softmax": True}, {}, "needs a token embedding"),
        ({"precision": "int8"}, {}, "precision is 'int8'; use float32 or"),
        ({"options": TOKENS}, {}, "gives words of 50 characters, .* reads words of None"),
        ({}, {"max_characters_per_token": None}, "of None .* reads words of 50"),
        ({}, {"bidirectional": False}, "true in the model, but not in the reader"),
    ],
)
def test_settings_that_are_refused(arguments, text, message):
    """By the model, or by its call with a batch of the text."""
    with pytest.raises(ValueError, match=message):
        LanguageModel(**{"options": SMALL, **arguments}, words=WORDS)(**next(iter(read(**text))))
