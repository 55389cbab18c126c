"""
Training and evaluation with the size for small corpora, as `elmo-train` trains it, compared with
the naive model of `tests.support.naive_training`. What is random is drawn again from the same state
of torch's generator.
"""

import copy
import json
import math
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler, Samples
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained
from allennlp_elmo_plugin.training import TextBatches, trainer
from allennlp_elmo_plugin.training.settings import make_trainer
from tests.support.bilm_tf import set_variables, variables
from tests.support.naive_bilm import DIRECTIONS
from tests.support.naive_training import NaiveTraining, Stream

DIM, N_LAYERS = 3, 2
LSTM = {"dim": 5, "projection_dim": DIM, "n_layers": N_LAYERS, "cell_clip": 0.8, "proj_clip": 0.4}
OPTIONS = {"lstm": {**LSTM, "use_skip_connections": True}}
ROWS, STEPS, VALIDATION_ROWS = 3, 4, 4
TRAINING = {"num_epochs": 2, "learning_rate": 0.05, "warmup_steps": 3, "grad_norm": 1.5}
EPOCHS, LEARNING_RATE, WARMUP, NORM = TRAINING.values()
RANDOM = {"dropout": 0.3, "recurrent_dropout": 0.4, "state_reset": 0.3}
DROPOUT, RECURRENT_DROPOUT, STATE_RESET = RANDOM.values()
TEXT = "a b c d\n\na a e\nb\n\n\nf g a b c\nd d a\nh\na b a c e f\ng b a\nc\n\na d\n" * 6
HELD_OUT = "a x b\n\nc d e a\n"
SIZES = Path(__file__).parents[2] / "training_config" / "pretrain" / "sizes.json"
RUN = {
    "model": {"options": OPTIONS, "precision": "float32", **RANDOM},
    "text": {"paths": "train.txt", "batch_size": ROWS, "num_steps": STEPS},
    "validation": {"paths": "validation.txt", "batch_size": VALIDATION_ROWS, "num_steps": 2},
    "training": TRAINING,
}
SUFFIXES = {"forward": "", "backward": "_reverse"}
EMBEDDING, WEIGHT, BIAS = "lm/embedding", "lm/softmax/W", "lm/softmax/b"


def make_naive(tied, tensors):
    naive = NaiveTraining({**OPTIONS, "bidirectional": True, "share_embedding_softmax": tied}, {})
    naive.variables = tensors
    return naive


def read(words, path, n_rows, n_steps, **settings):
    return list(TextBatches(path, words, n_rows, n_steps, None, contiguous=True, **settings))


def perplexities(tensors, tied, words):
    """The validation perplexities of the directions, computed for all words of a row at once."""
    [batch] = read(words, "validation.txt", VALIDATION_ROWS, 1000, drop_last=False)
    naive = make_naive(tied, tensors)
    for direction, suffix in SUFFIXES.items():
        losses = []
        for tokens, targets in zip(batch[f"tokens{suffix}"], batch[f"targets{suffix}"]):
            naive.states.clear()
            n_words = int((targets >= 0).sum())
            stream = Stream(tokens[None, :n_words], targets[None, :n_words])
            losses += [naive.loss(0, direction, stream).item()] * n_words
        yield f"{direction}_perplexity", math.exp(sum(losses) / len(losses))


def masked_kernels(tensors, masks):
    """The kernels with zeros for the recurrent weights that are dropped."""
    masked = dict(tensors)
    kernels = [name for name in tensors if name.endswith("/kernel") and "projection" not in name]
    for name, mask in zip(kernels, masks, strict=True):
        i, f, j, o = mask.chunk(4)  # the order of the gates in our model
        recurrent = torch.cat([i, j, f, o]).t()
        masked[name] = tensors[name] * torch.cat([torch.ones_like(recurrent), recurrent])
    return masked


@pytest.fixture
def words(tmp_path, monkeypatch):
    """The words of files in the current folder, for computations in double precision."""
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text(TEXT)
    Path("validation.txt").write_text(HELD_OUT)
    Path("run").mkdir()
    torch.set_default_dtype(torch.float64)
    yield [word for word, _ in make_vocabulary("train.txt", "vocab")]
    torch.set_default_dtype(torch.float32)


def train(monkeypatch, words, n_accumulated, **of_model):
    """
    Train the size with some settings. Return its trainer, the initial variables, and of each batch
    the random state before it, its samples and losses; and of each update the norm of the
    gradients.
    """
    run = json.loads(SIZES.read_text("utf-8"))["small_corpus"]
    for section, values in RUN.items():
        run[section] |= values
    run["model"] |= of_model
    run["training"]["num_gradient_accumulation_steps"] = n_accumulated
    loop = make_trainer(run, words, Path("run"), "cpu")
    for parameter in loop.model.parameters():
        # `variables` returns float32 numbers.
        parameter.data.normal_(std=0.7).copy_(parameter.data.float())
    initial = {name: torch.tensor(values).double() for name, values in variables(loop.model)}
    steps, norms, clip = [], [], trainer.clip_grad_norm_
    generator = torch.Generator().manual_seed(1)

    def sample(self):
        ids = torch.randperm(self.n_words, generator=generator)[: self.n_samples]
        steps[-1].samples.append(Samples(ids, 7))
        return steps[-1].samples[-1]

    def start(model, _):
        if model.training:
            steps.append(SimpleNamespace(random_state=torch.get_rng_state(), samples=[]))

    def end(model, _, outputs):
        if model.training:
            steps[-1].losses = {key: value.item() for key, value in outputs.items()}

    monkeypatch.setattr(LogUniformSampler, "sample", sample)
    monkeypatch.setattr(
        trainer, "clip_grad_norm_", lambda *args: norms.append(clip(*args)) or norms[-1]
    )
    loop.model.register_forward_pre_hook(start)
    loop.model.register_forward_hook(end)
    loop.train()
    return loop, initial, steps, norms


def naive_losses(naive, tensors, batch, step):
    """The loss of each direction, with all that is random drawn again as in the recorded step."""
    torch.set_rng_state(step.random_state)
    is_reset = torch.rand(ROWS) < STATE_RESET
    drawn = [
        F.dropout(torch.ones(*shape, DIM), p)
        for _ in range(len(DIRECTIONS) * N_LAYERS)
        for shape, p in (((ROWS,), DROPOUT), ((20,), RECURRENT_DROPOUT))
    ]
    masks = [mask.expand(STEPS, ROWS, DIM) for mask in drawn[::2]]
    naive.variables = masked_kernels(tensors, drawn[1::2])
    for key, state in naive.states.items():
        naive.states[key] = tuple(part * ~is_reset[:, None] for part in state)
    losses = {}
    for k, (direction, suffix) in enumerate(SUFFIXES.items()):
        of_top = F.dropout(torch.ones(ROWS, DIM), DROPOUT).repeat_interleave(STEPS, 0)
        of_layers = masks[k * N_LAYERS :][:N_LAYERS]
        samples = step.samples[k] if step.samples else None
        words = batch[f"tokens{suffix}"], batch[f"targets{suffix}"]
        losses[direction] = naive.loss(0, direction, Stream(*words, samples, [*of_layers, of_top]))
    return losses


def rows_in_use(batches, steps, tied):
    """The rows of each variable with sparse gradients that an update changes."""
    rows = defaultdict(set)
    for batch, step in zip(batches, steps, strict=True):
        for k, suffix in enumerate(SUFFIXES.values()):
            if step.samples or not tied:
                rows[EMBEDDING].update(batch[f"tokens{suffix}"].flatten().tolist())
            for name in (EMBEDDING if tied else WEIGHT, BIAS) if step.samples else ():
                rows[name].update(batch[f"targets{suffix}"].flatten().tolist())
                rows[name].update(step.samples[k].ids.tolist())
    return {name: torch.tensor(sorted(numbers)) for name, numbers in rows.items()}


def update(values, moments, rate, n, rows):
    """Update n by Adam, of all rows with `eps` as in torch's Adam, or of some as in SparseAdam."""
    gradient, (mean, square) = values.grad[rows], moments
    mean[rows] += 0.1 * (gradient - mean[rows])
    square[rows] += 0.001 * (gradient**2 - square[rows])
    correction = math.sqrt(1 - 0.999**n)
    eps = 1e-8 if rows is ... else 1e-8 / correction
    step = mean[rows] / (1 - 0.9**n) / (square[rows].sqrt() / correction + eps)
    values.data[rows] -= rate * step


@pytest.mark.parametrize("num_samples", [0, 4])
@pytest.mark.parametrize("tied", [False, True])
def test_training_and_evaluation(num_samples, tied, words, monkeypatch):
    n_accumulated = 2 if num_samples else 1
    of_model = {"num_samples": num_samples, "share_embedding_softmax": tied}
    loop, initial, steps, norms = train(monkeypatch, words, n_accumulated, **of_model)

    if tied:
        del initial[WEIGHT]
    own = {name: values.requires_grad_() for name, values in initial.items()}
    moments = {name: torch.zeros(2, *values.shape) for name, values in own.items()}
    naive = make_naive(tied, own)
    windows = read(words, "train.txt", ROWS, STEPS)
    assert len(steps) == EPOCHS * len(windows)
    n_updates = EPOCHS * math.ceil(len(windows) / n_accumulated)
    rising = min(WARMUP, n_updates // 10)
    assert len(norms) == n_updates and any(norm > NORM for norm in norms) and rising > 1
    n_done = 0
    for epoch in range(EPOCHS):
        for first in range(0, len(windows), n_accumulated):
            group = windows[first : first + n_accumulated]
            recorded = steps[epoch * len(windows) + first :][: len(group)]
            for batch, step in zip(group, recorded, strict=True):
                losses = naive_losses(naive, own, batch, step)
                for direction, loss in losses.items():
                    assert step.losses[f"{direction}_loss"] == pytest.approx(loss.item(), rel=1e-9)
                loss = sum(losses.values()) / 2
                assert step.losses["loss"] == pytest.approx(loss.item(), rel=1e-9)
                (loss * STEPS / len(group)).backward()
            norm = math.sqrt(sum(float((values.grad**2).sum()) for values in own.values()))
            assert norms[n_done] == pytest.approx(norm, rel=1e-8)
            n_done += 1
            falling = (n_updates - n_done) / (n_updates - rising)
            rate = LEARNING_RATE * (falling if n_done >= rising else n_done / rising)
            rows = rows_in_use(group, recorded, tied)
            for name, values in own.items():
                values.grad *= min(1.0, NORM / (norm + 1e-6))
                update(values, moments[name], rate, n_done, rows.get(name, ...))
                values.grad = None
        metrics = json.loads(Path(f"run/metrics_epoch_{epoch}.json").read_text())
        for name, expected in perplexities(own, tied, words):
            assert metrics[f"validation_{name}"] == pytest.approx(expected, rel=1e-9)
        arrays = {f"own/{name}": values.detach().clone().numpy() for name, values in own.items()}
        if epoch == loop.best:
            for name, values in variables(read_pretrained("run")):
                assert values == pytest.approx(arrays.get(f"own/{name}", values), rel=1e-6)
    expected = copy.deepcopy(loop.model)
    set_variables(expected, arrays, "own")
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(loop.model.state_dict()[name], value, rtol=1e-7, atol=1e-9)
