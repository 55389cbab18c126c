"""
Training and evaluation with the options for small corpora, by AllenNLP's trainer, compared with the
naive model of `tests.support.naive_training`. What is random is drawn again from the same state of
torch's generator.
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
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.training.optimizers import DenseSparseAdam

from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler, Samples
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.plugin.training import ResumableTrainer
from tests.plugin.components.bidirectional_lm_test import SUFFIXES, read
from tests.support.bilm_tf import set_variables, variables
from tests.support.naive_bilm import DIRECTIONS
from tests.support.naive_training import NaiveTraining, Stream

DIM, N_LAYERS = 3, 2
LSTM = {"dim": 5, "projection_dim": DIM, "n_layers": N_LAYERS, "cell_clip": 0.8, "proj_clip": 0.4}
OPTIONS = {"lstm": {**LSTM, "use_skip_connections": True}}
ROWS, STEPS, VALIDATION_ROWS = 3, 4, 4
EPOCHS, LEARNING_RATE, WARMUP, NORM = 2, 0.05, 3, 1.5
DROPOUT, RECURRENT_DROPOUT, STATE_RESET = 0.3, 0.4, 0.3
TEXT = "a b c d\n\na a e\nb\n\n\nf g a b c\nd d a\nh\na b a c e f\ng b a\nc\n\na d\n" * 2
HELD_OUT = "a x b\n\nc d e a\n"
CHANGES = {
    "dataset_reader.batch_size": ROWS,
    "dataset_reader.num_steps": STEPS,
    "dataset_reader.max_characters_per_token": None,
    "validation_dataset_reader.batch_size": VALIDATION_ROWS,
    "validation_dataset_reader.num_steps": 2,
    "validation_dataset_reader.max_characters_per_token": None,
    "model.options": OPTIONS,
    "model.dropout": DROPOUT,
    "model.precision": "float32",
    "model.recurrent_dropout": RECURRENT_DROPOUT,
    "model.state_reset": STATE_RESET,
    "trainer.cuda_device": -1,
    "trainer.num_epochs": EPOCHS,
    "trainer.optimizer.lr": LEARNING_RATE,
    "trainer.learning_rate_scheduler.warmup_steps": WARMUP,
    "trainer.grad_norm": NORM,
}
READER = {"contiguous": True, "max_characters_per_token": None}
EMBEDDING, WEIGHT, BIAS = "lm/embedding", "lm/softmax/W", "lm/softmax/b"
PATHS = {f"{name}_DATA_PATH": f"{name.lower()}.txt" for name in ("TRAIN", "VALIDATION")}
PATHS["VOCABULARY_PATH"] = "vocab"
CONFIG = Path(__file__).parents[3] / "training_config" / "pretrain" / "small_corpus.jsonnet"


def make_naive(tied, tensors):
    naive = NaiveTraining({**OPTIONS, "bidirectional": True, "share_embedding_softmax": tied}, {})
    naive.variables = tensors
    return naive


def perplexities(tensors, tied, vocab):
    """The validation perplexities of the directions, computed for all words of a row at once."""
    settings = {**READER, "batch_size": VALIDATION_ROWS, "num_steps": 1000, "drop_last": False}
    [batch] = read(vocab, "validation.txt", **settings)
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
def vocab(tmp_path, monkeypatch):
    """A vocabulary of files in the current folder, for computations in double precision."""
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text(TEXT)
    Path("validation.txt").write_text(HELD_OUT)
    make_vocabulary("train.txt", "vocab")
    torch.set_default_dtype(torch.float64)
    yield Vocabulary.from_files("vocab/vocabulary")
    torch.set_default_dtype(torch.float32)


def train(monkeypatch, changes):
    """
    Train the config. Return the model, its initial variables, and of each batch the random state
    before it, its samples and losses; and of each update the norm of the gradients.
    """
    initial, steps, norms = {}, [], []
    batch_outputs, rescale = ResumableTrainer.batch_outputs, ResumableTrainer.rescale_gradients
    generator = torch.Generator().manual_seed(1)

    def sample(self):
        ids = torch.randperm(self.n_words, generator=generator)[: self.n_samples]
        steps[-1].samples.append(Samples(ids, 7))
        return steps[-1].samples[-1]

    def record(self, batch, for_training):
        if not for_training:
            return batch_outputs(self, batch, for_training)
        if not initial:
            for parameter in self.model.parameters():
                # `variables` returns float32 numbers.
                parameter.data.normal_(std=0.7).copy_(parameter.data.float())
            initial.update((k, torch.tensor(v).double()) for k, v in variables(self.model))
        steps.append(SimpleNamespace(random_state=torch.get_rng_state(), samples=[]))
        outputs = batch_outputs(self, batch, for_training)
        steps[-1].losses = {key: value.item() for key, value in outputs.items()}
        return outputs

    def record_norm(self):
        norms.append(rescale(self))
        return norms[-1]

    monkeypatch.setattr(LogUniformSampler, "sample", sample)
    monkeypatch.setattr(ResumableTrainer, "batch_outputs", record)
    monkeypatch.setattr(ResumableTrainer, "rescale_gradients", record_norm)
    config = Params.from_file(CONFIG, json.dumps({**CHANGES, **changes}), PATHS)
    return train_model(config, "run"), initial, steps, norms


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


@pytest.mark.parametrize("num_samples", [0, 4])
@pytest.mark.parametrize("tied", [False, True])
def test_training_and_evaluation(num_samples, tied, vocab, monkeypatch):
    n_accumulated = 2 if num_samples else 1
    changes = {"model.num_samples": num_samples, "model.share_embedding_softmax": tied}
    changes["trainer.num_gradient_accumulation_steps"] = n_accumulated
    model, initial, steps, norms = train(monkeypatch, changes)

    if tied:
        del initial[WEIGHT]
    own = {name: values.requires_grad_() for name, values in initial.items()}
    optimizer = DenseSparseAdam(list(own.items()))
    naive = make_naive(tied, own)
    windows = list(read(vocab, "train.txt", **READER, batch_size=ROWS, num_steps=STEPS))
    assert len(steps) == EPOCHS * len(windows)
    n_updates = EPOCHS * math.ceil(len(windows) / n_accumulated)
    assert len(norms) == n_updates and any(norm > NORM for norm in norms)
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
            for values in own.values():
                values.grad *= min(1.0, NORM / (norm + 1e-6))
            for name, rows in rows_in_use(group, recorded, tied).items():
                values = own[name]
                values.grad = torch.sparse_coo_tensor(rows[None], values.grad[rows], values.shape)
            n_done += 1
            falling = (n_updates - n_done) / (n_updates - WARMUP)
            share = falling if n_done >= WARMUP else n_done / WARMUP
            optimizer.param_groups[0]["lr"] = LEARNING_RATE * share
            optimizer.step()
            optimizer.zero_grad()
        metrics = json.loads(Path(f"run/metrics_epoch_{epoch}.json").read_text())
        for name, expected in perplexities(own, tied, vocab):
            assert metrics[f"validation_{name}"] == pytest.approx(expected, rel=1e-9)
        if epoch == metrics["best_epoch"]:
            best = {f"best/{name}": value.detach().clone().numpy() for name, value in own.items()}
    expected = copy.deepcopy(model)
    set_variables(expected, best, "best")
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-7, atol=1e-9)
