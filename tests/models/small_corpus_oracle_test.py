"""
Training and evaluation with the options for small corpora, by AllenNLP's trainer, compared with a
plain re-implementation: one row and one word after another, dense tensors, and automatic
differentiation of everything. What is random is drawn again from the same state of torch's
generator.
"""

import json
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import pytest
import torch
import torch.nn.functional as F
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler, Samples
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.training import ResumableTrainer
from tests.support.naive_bilm import log_expected_count

DIM, N_LAYERS = 3, 2
OPTIONS = {
    "lstm": {
        "dim": 5,
        "projection_dim": DIM,
        "n_layers": N_LAYERS,
        "cell_clip": 0.8,
        "proj_clip": 0.4,
        "use_skip_connections": True,
    }
}
ROWS, STEPS = 3, 4
VALIDATION_ROWS = 4
EPOCHS, LEARNING_RATE, WARMUP, NORM, DECAY = 2, 0.05, 3, 1.5, 0.8
DROPOUT, RECURRENT_DROPOUT, STATE_RESET = 0.3, 0.4, 0.3
DIRECTIONS = ("forward", "backward")
TEXT = "a b c d\n\na a e\nb\n\n\nf g a b c\nd d a\nh\na b a c e f\ng b a\nc\n\na d\n" * 2
HELD_OUT = "a x b\n\nc d\n"

Pair = Tuple[int, int]
State = List[Tuple[torch.Tensor, torch.Tensor]]


class Step(NamedTuple):
    """What a batch of the trainer began with, and its losses."""

    random_state: torch.Tensor
    samples: List[Samples]
    losses: Dict[str, float]


class PlainLm:
    """A model and its optimizer, from the parameters that the trainer begins with."""

    def __init__(self, parameters: Dict[str, torch.Tensor], words: List[str], tied: bool) -> None:
        self.p = {name: value.clone().requires_grad_() for name, value in parameters.items()}
        self.ids = {word: i for i, word in enumerate(words)}
        self.tied = tied
        if tied:
            del self.p["softmax.weight"]
        self.means = {name: torch.zeros_like(value) for name, value in self.p.items()}
        self.squares = {name: torch.zeros_like(value) for name, value in self.p.items()}
        self.averages = {name: value.detach().clone() for name, value in self.p.items()}
        self.n_updates = 0

    def rows(self, text: str, direction: str, n_rows: int) -> List[List[Pair]]:
        """The parts of a text: ids read, and those to predict."""
        lines = text.split("\n")[:-1]
        pairs = []
        for line in lines if direction == "forward" else reversed(lines):
            marked = ["<S>", *line.split(), "</S>"]
            if direction == "backward":
                marked.reverse()
            ids = [self.ids.get(word, self.ids["<UNK>"]) for word in marked]
            pairs += zip(ids, ids[1:])
        bounds = [row * len(pairs) // n_rows for row in range(n_rows + 1)]
        return [pairs[start:end] for start, end in zip(bounds, bounds[1:])]

    def zero(self) -> State:
        return [(torch.zeros(DIM), torch.zeros(5)) for _ in range(N_LAYERS)]

    def read(
        self, direction: str, word: int, state: State, masks: Any = None, weight_masks: Any = None
    ) -> Tuple[torch.Tensor, State]:
        """The top vector after a word, and the state."""
        x = self.p["bilm._token_embedder.weight"][word]
        after = []
        for layer, (output, memory) in enumerate(state):
            prefix = f"bilm._elmo_lstm.{direction}_layer_{layer}."
            weight = self.p[prefix + "state_linearity.weight"]
            if masks is not None:
                x = x * masks[layer]
                weight = weight * weight_masks[layer]
            gates = self.p[prefix + "input_linearity.weight"] @ x + weight @ output
            i, f, g, o = (gates + self.p[prefix + "state_linearity.bias"]).chunk(4)
            memory = torch.sigmoid(f + 1) * memory + torch.sigmoid(i) * torch.tanh(g)
            memory = memory.clamp(-0.8, 0.8)
            output = self.p[prefix + "state_projection.weight"] @ (
                torch.sigmoid(o) * torch.tanh(memory)
            )
            output = output.clamp(-0.4, 0.4)
            after.append((output, memory))
            x = output + x if layer else output
        return x if masks is None else x * masks[N_LAYERS], after

    def loss(self, top: torch.Tensor, target: int, samples: Optional[Samples]) -> torch.Tensor:
        weight = self.p["bilm._token_embedder.weight" if self.tied else "softmax.weight"]
        logits = weight @ top + self.p["softmax.bias"]
        if samples is None:
            return torch.logsumexp(logits, 0) - logits[target]
        offsets = log_expected_count(
            torch.arange(len(logits)), len(logits), len(samples.ids), samples.num_tries
        )
        logits = logits - offsets
        others = [i for i in samples.ids.tolist() if i != target]
        return torch.logsumexp(logits[[target, *others]], 0) - logits[target]

    def perplexity(self, text: str, direction: str, n_rows: int) -> float:
        losses = []
        with torch.no_grad():
            for row in self.rows(text, direction, n_rows):
                state = self.zero()
                for word, target in row:
                    top, state = self.read(direction, word, state)
                    losses.append(self.loss(top, target, None).item())
        return math.exp(sum(losses) / len(losses))

    def update(self, touched: Dict[str, List[int]], learning_rate: float) -> float:
        """Adam, of sparse gradients of the rows alone that were touched. Returns the norm."""
        self.n_updates += 1
        norm = math.sqrt(sum(float((p.grad**2).sum()) for p in self.p.values()))
        for name, p in self.p.items():
            gradient = p.grad * min(1.0, NORM / (norm + 1e-6))
            rows: Any = sorted(set(touched[name])) if name in touched else slice(None)
            with torch.no_grad():
                mean, square = self.means[name], self.squares[name]
                mean[rows] = 0.9 * mean[rows] + 0.1 * gradient[rows]
                square[rows] = 0.999 * square[rows] + 0.001 * gradient[rows] ** 2
                root = (square[rows] / (1 - 0.999**self.n_updates)).sqrt()
                eps = 1e-8 / math.sqrt(1 - 0.999**self.n_updates)
                p[rows] -= learning_rate * mean[rows] / (1 - 0.9**self.n_updates) / (root + eps)
                decay = min(DECAY, (1 + self.n_updates) / (10 + self.n_updates))
                self.averages[name].mul_(decay).add_(p, alpha=1 - decay)
            p.grad = None
        return norm


@pytest.fixture
def double_precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


CASES: Dict[str, Dict[str, Any]] = {
    "full softmax": {"num_samples": 0},
    "sampled": {"num_samples": 4},
    "tied": {"num_samples": 0, "share_embedding_softmax": True},
    "tied, sampled": {"num_samples": 4, "share_embedding_softmax": True},
}


@pytest.mark.parametrize("case", CASES)
def test_training_and_evaluation(case, tmp_path, monkeypatch, double_precision):
    n_accumulated = 2 if "sampled" in case else 1
    (tmp_path / "train.txt").write_text(TEXT)
    (tmp_path / "held_out.txt").write_text(HELD_OUT)
    make_vocabulary(tmp_path / "train.txt", tmp_path / "vocab")
    reader = {
        "type": "truncated_bptt_lm",
        "batch_size": ROWS,
        "num_steps": STEPS,
        "max_characters_per_token": None,
        "contiguous": True,
    }
    params = {
        "dataset_reader": reader,
        "validation_dataset_reader": {
            **reader,
            "batch_size": VALIDATION_ROWS,
            "num_steps": 2,
            "drop_last": False,
        },
        "train_data_path": str(tmp_path / "train.txt"),
        "validation_data_path": str(tmp_path / "held_out.txt"),
        "vocabulary": {"type": "from_files", "directory": str(tmp_path / "vocab")},
        "model": {
            "type": "bidirectional_lm",
            "options": OPTIONS,
            "dropout": DROPOUT,
            "variational_dropout": True,
            "recurrent_dropout": RECURRENT_DROPOUT,
            "state_reset": STATE_RESET,
            **CASES[case],
        },
        "data_loader": {"type": "truncated_bptt"},
        "trainer": {
            "num_epochs": EPOCHS,
            "cuda_device": -1,
            "optimizer": {"type": "dense_sparse_adam", "lr": LEARNING_RATE},
            "learning_rate_scheduler": {"type": "linear_with_warmup", "warmup_steps": WARMUP},
            "moving_average": {"type": "exponential", "decay": DECAY},
            "num_gradient_accumulation_steps": n_accumulated,
            "grad_norm": NORM,
        },
    }
    steps: List[Step] = []
    norms: List[Any] = []
    initial: Dict[str, torch.Tensor] = {}
    batch_outputs, rescale = ResumableTrainer.batch_outputs, ResumableTrainer.rescale_gradients
    generator = torch.Generator().manual_seed(1)

    def sample(self: LogUniformSampler) -> Samples:
        ids = torch.randperm(self.n_words, generator=generator)[: self.n_samples]
        steps[-1].samples.append(Samples(ids, 7))
        return steps[-1].samples[-1]

    def record(self: Any, batch: Any, for_training: bool) -> Any:
        if for_training:
            if not initial:
                for parameter in self.model.parameters():
                    torch.nn.init.normal_(parameter, std=0.7)
                initial.update({k: v.clone() for k, v in self.model.state_dict().items()})
                for name, value in self._moving_average._parameters:
                    self._moving_average._shadows[name].copy_(value.data)
            steps.append(Step(torch.get_rng_state(), [], {}))
        outputs = batch_outputs(self, batch, for_training)
        if for_training:
            steps[-1].losses.update({key: value.item() for key, value in outputs.items()})
        return outputs

    def record_norm(self: Any) -> Any:
        norms.append(rescale(self))
        return norms[-1]

    monkeypatch.setattr(LogUniformSampler, "sample", sample)
    monkeypatch.setattr(ResumableTrainer, "batch_outputs", record)
    monkeypatch.setattr(ResumableTrainer, "rescale_gradients", record_norm)
    model: Any = train_model(Params(params), str(tmp_path / "run"))

    words = (tmp_path / "vocab" / "vocabulary" / "lm_tokens.txt").read_text().split()
    tied = "tied" in case
    plain = PlainLm(initial, words, tied)
    texts = {direction: plain.rows(TEXT, direction, ROWS) for direction in DIRECTIONS}
    n_windows = min(map(len, texts["forward"])) // STEPS
    assert len(steps) == EPOCHS * n_windows
    n_updates = EPOCHS * math.ceil(n_windows / n_accumulated)
    assert len(norms) == n_updates and any(norm > NORM for norm in norms)
    states = {(d, row): plain.zero() for d in DIRECTIONS for row in range(ROWS)}
    number = 0
    sparse = ["bilm._token_embedder.weight"] if not tied or "sampled" in case else []
    if "sampled" in case:
        sparse += ["softmax.bias", *([] if tied else ["softmax.weight"])]
    for epoch in range(EPOCHS):
        for first in range(0, n_windows, n_accumulated):
            group = range(first, min(first + n_accumulated, n_windows))
            touched: Dict[str, List[int]] = {name: [] for name in sparse}
            total = torch.zeros(())
            for window in group:
                step = steps[number]
                number += 1
                torch.set_rng_state(step.random_state)
                resets = (torch.rand(ROWS) < STATE_RESET).tolist()
                masks: Dict[str, Any] = {d: [] for d in DIRECTIONS}
                weight_masks: Dict[str, Any] = {d: [] for d in DIRECTIONS}
                for direction in DIRECTIONS:
                    for _ in range(N_LAYERS):
                        masks[direction].append(F.dropout(torch.ones(ROWS, DIM), DROPOUT))
                        weight_masks[direction].append(
                            F.dropout(torch.ones(20, DIM), RECURRENT_DROPOUT)
                        )
                for direction in DIRECTIONS:
                    masks[direction].append(F.dropout(torch.ones(ROWS, DIM), DROPOUT))
                losses = {}
                for k, direction in enumerate(DIRECTIONS):
                    samples = step.samples[k] if step.samples else None
                    of_words = []
                    for row in range(ROWS):
                        state = states[direction, row]
                        state = [tuple(part.detach() for part in each) for each in state]
                        if resets[row]:
                            state = plain.zero()
                        of_row = [mask[row] for mask in masks[direction]]
                        start = window * STEPS
                        for word, target in texts[direction][row][start : start + STEPS]:
                            top, state = plain.read(
                                direction, word, state, of_row, weight_masks[direction]
                            )
                            of_words.append(plain.loss(top, target, samples))
                            for name in sparse:
                                if "embedder" in name:
                                    touched[name].append(word)
                                if tied or "softmax" in name:
                                    touched[name].append(target)
                                    touched[name] += samples.ids.tolist()
                        states[direction, row] = state
                    assert len(of_words) == ROWS * STEPS
                    losses[direction] = torch.stack(of_words).mean()
                    found = step.losses[f"{direction}_loss"]
                    assert found == pytest.approx(losses[direction].item(), rel=1e-9)
                loss = (losses["forward"] + losses["backward"]) / 2
                assert step.losses["loss"] == pytest.approx(loss.item(), rel=1e-9)
                total = total + loss * STEPS / len(group)
            total.backward()
            n_done = plain.n_updates + 1
            share = n_done / WARMUP
            if n_done >= WARMUP:
                share = (n_updates - n_done) / (n_updates - WARMUP)
            norm = plain.update(touched, LEARNING_RATE * share)
            assert norms[plain.n_updates - 1] == pytest.approx(norm, rel=1e-8)
        averaged = PlainLm({**plain.averages, "softmax.weight": torch.zeros(0)}, words, tied)
        if not tied:
            averaged.p["softmax.weight"] = plain.averages["softmax.weight"]
        metrics = json.loads((tmp_path / "run" / f"metrics_epoch_{epoch}.json").read_text())
        for direction in DIRECTIONS:
            expected = averaged.perplexity(HELD_OUT, direction, VALIDATION_ROWS)
            found = metrics[f"validation_{direction}_perplexity"]
            assert found == pytest.approx(expected, rel=1e-9)
        if epoch == metrics["best_epoch"]:
            best = {name: value.clone() for name, value in plain.averages.items()}
    for name, value in best.items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("text", [HELD_OUT, TEXT, "\n", "a", "\n\na\n\n", "b a a d c f g e h x"])
def test_evaluation_at_every_batch_size(text, tmp_path, double_precision):
    """Of a text with rows of any length, some of them empty."""
    (tmp_path / "train.txt").write_text(TEXT)
    (tmp_path / "text.txt").write_text(text)
    make_vocabulary(tmp_path / "train.txt", tmp_path / "vocab")
    vocab = Vocabulary.from_files(str(tmp_path / "vocab" / "vocabulary"))
    torch.manual_seed(0)
    model = BidirectionalLanguageModel(vocab, options=OPTIONS, num_samples=0).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    words = list(vocab.get_token_to_index_vocabulary("lm_tokens"))
    plain = PlainLm(model.state_dict(), words, tied=False)
    text = text if text.endswith("\n") else f"{text}\n"
    for n_rows, num_steps in ((1, 1), (1, 100), (2, 3), (7, 5), (40, 4)):
        reader = TruncatedBpttLmReader(
            n_rows, num_steps, None, drop_last=False, contiguous=True, bidirectional=True
        )
        loader = TruncatedBpttDataLoader(reader, str(tmp_path / "text.txt"))
        loader.index_with(vocab)
        with torch.no_grad():
            for batch in loader:
                model(**batch)
        metrics = model.get_metrics(reset=True)
        assert model.n_predicted_words == len(text.split()) + text.count("\n")
        for direction in DIRECTIONS:
            expected = plain.perplexity(text, direction, n_rows)
            assert metrics[f"{direction}_perplexity"] == pytest.approx(expected, rel=1e-9)
