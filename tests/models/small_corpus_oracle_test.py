"""
Training and evaluation with the options for small corpora, by AllenNLP's trainer, compared with the
naive model of `tests.support.naive_bilm`. What is random is drawn again from the same state of
torch's generator.
"""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import pytest
import torch
import torch.nn.functional as F
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.training.moving_average import ExponentialMovingAverage
from allennlp.training.optimizers import DenseSparseAdam

from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler, Samples
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.training import ResumableTrainer
from tests.models.bidirectional_lm_test import read
from tests.support.corpora import plain_windows
from tests.support.naive_bilm import DIRECTIONS, NaiveBiLm, Stream

DIM, N_LAYERS = 3, 2
LSTM = {"dim": 5, "projection_dim": DIM, "n_layers": N_LAYERS, "cell_clip": 0.8, "proj_clip": 0.4}
OPTIONS: Dict[str, Any] = {"lstm": {**LSTM, "use_skip_connections": True}}
ROWS, STEPS, VALIDATION_ROWS = 3, 4, 4
EPOCHS, LEARNING_RATE, WARMUP, NORM, DECAY = 2, 0.05, 3, 1.5, 0.8
DROPOUT, RECURRENT_DROPOUT, STATE_RESET = 0.3, 0.4, 0.3
TEXT = "a b c d\n\na a e\nb\n\n\nf g a b c\nd d a\nh\na b a c e f\ng b a\nc\n\na d\n" * 2
HELD_OUT = "a x b\n\nc d\n"
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
    "trainer.moving_average": {"type": "exponential", "decay": DECAY},
    "trainer.grad_norm": NORM,
}
EMBEDDING = "bilm._token_embedder.weight"

CONFIG = Path(__file__).parents[2] / "training_config" / "pretrain" / "small_corpus.jsonnet"

Tensors = Dict[str, torch.Tensor]
Ids = List[List[int]]


def windows_of(
    text: str, words: List[str], direction: str, n_rows: int, num_steps: int, drop_last: bool
) -> List[Tuple[Ids, Ids]]:
    """The ids that each row reads and predicts, window by window."""
    known = [" ".join(w if w in words else "<UNK>" for w in x.split()) for x in text.split("\n")]
    is_reverse = direction == "backward"
    windows = plain_windows(known[:-1], n_rows, num_steps, is_reverse, drop_last, contiguous=True)
    return [
        tuple([[words.index(word) for word in row] for row in side] for side in window)
        for window in windows
    ]


def naive_variables(parameters: Tensors, tied: bool, weight_masks: Any = None) -> Tensors:
    """Our parameters, by TensorFlow's names."""
    variables = {
        "lm/embedding": parameters[EMBEDDING],
        "lm/softmax/W": parameters[EMBEDDING if tied else "softmax.weight"],
        "lm/softmax/b": parameters["softmax.bias"],
    }
    for number, direction in enumerate(DIRECTIONS):
        for layer in range(N_LAYERS):
            own = f"bilm._elmo_lstm.{direction}_layer_{layer}."
            cell = f"lm/RNN_{number}/rnn/multi_rnn_cell/cell_{layer}/lstm_cell/"
            recurrent = parameters[f"{own}state_linearity.weight"]
            if weight_masks is not None:
                recurrent = recurrent * weight_masks[number * N_LAYERS + layer]
            kernel = torch.cat([parameters[f"{own}input_linearity.weight"], recurrent], 1)
            bias = parameters[f"{own}state_linearity.bias"]
            for name, gates in ("kernel", kernel), ("bias", bias):
                i, f, j, o = gates.chunk(4)
                variables[cell + name] = torch.cat([i, j, f, o]).t()
            projection = parameters[f"{own}state_projection.weight"]
            variables[f"{cell}projection/kernel"] = projection.t()
    return variables


def make_naive(tied: bool) -> NaiveBiLm:
    return NaiveBiLm({**OPTIONS, "bidirectional": True, "share_embedding_softmax": tied}, {})


def perplexity(
    parameters: Tensors, tied: bool, text: str, words: List[str], direction: str, n_rows: int
) -> float:
    naive = make_naive(tied)
    naive.variables = naive_variables(parameters, tied)
    losses: List[float] = []
    [rows] = windows_of(text, words, direction, n_rows, 10**6, drop_last=False)
    for tokens, targets in zip(*rows):
        naive.states.clear()
        if tokens:
            stream = Stream(torch.tensor([tokens]), torch.tensor([targets]))
            losses += [naive.loss(0, direction, stream).item()] * len(tokens)
    return math.exp(sum(losses) / len(losses))


def update(optimizer: Any, average: Any, n_done: int, learning_rate: float, touched: Any) -> float:
    """Return the norm of the gradients, of which those that are sparse have the touched rows."""
    [group] = optimizer.param_groups
    norm = math.sqrt(sum(float((each.grad**2).sum()) for each in group["params"]))
    for name, parameter in average._parameters:
        parameter.grad *= min(1.0, NORM / (norm + 1e-6))
        if name in touched:
            rows = torch.tensor(sorted(set(touched[name])))
            values = parameter.grad[rows]
            parameter.grad = torch.sparse_coo_tensor(rows[None], values, parameter.shape)
    group["lr"] = learning_rate
    optimizer.step()
    average.apply(n_done)
    optimizer.zero_grad()
    return norm


@pytest.fixture(autouse=True)
def double_precision_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text(TEXT)
    Path("held_out.txt").write_text(HELD_OUT)
    make_vocabulary("train.txt", "vocab")
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("num_samples", [0, 4])
@pytest.mark.parametrize("tied", [False, True])
def test_training_and_evaluation(num_samples, tied, monkeypatch):
    n_accumulated = 2 if num_samples else 1
    steps: List[Any] = []
    norms: List[Any] = []
    initial: Tensors = {}
    batch_outputs, rescale = ResumableTrainer.batch_outputs, ResumableTrainer.rescale_gradients
    generator = torch.Generator().manual_seed(1)

    def sample(self: LogUniformSampler) -> Samples:
        ids = torch.randperm(self.n_words, generator=generator)[: self.n_samples]
        steps[-1].samples.append(Samples(ids, 7))
        return steps[-1].samples[-1]

    def record(self: Any, batch: Any, for_training: bool) -> Any:
        if not for_training:
            return batch_outputs(self, batch, for_training)
        if not initial:
            for parameter in self.model.parameters():
                torch.nn.init.normal_(parameter, std=0.7)
            initial.update({k: v.clone() for k, v in self.model.state_dict().items()})
            for name, value in self._moving_average._parameters:
                self._moving_average._shadows[name].copy_(value.data)
        steps.append(SimpleNamespace(random_state=torch.get_rng_state(), samples=[]))
        outputs = batch_outputs(self, batch, for_training)
        steps[-1].losses = {key: value.item() for key, value in outputs.items()}
        return outputs

    def record_norm(self: Any) -> Any:
        norms.append(rescale(self))
        return norms[-1]

    monkeypatch.setattr(LogUniformSampler, "sample", sample)
    monkeypatch.setattr(ResumableTrainer, "batch_outputs", record)
    monkeypatch.setattr(ResumableTrainer, "rescale_gradients", record_norm)
    variables = {"TRAIN_DATA_PATH": "train.txt", "VALIDATION_DATA_PATH": "held_out.txt"}
    changes = {"model.num_samples": num_samples, "model.share_embedding_softmax": tied, **CHANGES}
    changes["trainer.num_gradient_accumulation_steps"] = n_accumulated
    params = Params.from_file(
        CONFIG, json.dumps(changes), {**variables, "VOCABULARY_PATH": "vocab"}
    )
    model: Any = train_model(params, "run")

    words = Path("vocab/vocab.txt").read_text().split()
    parameters = {name: value.requires_grad_() for name, value in initial.items()}
    if tied:
        del parameters["softmax.weight"]
    naive = make_naive(tied)
    optimizer = DenseSparseAdam(list(parameters.items()))
    average = ExponentialMovingAverage(parameters.items(), DECAY)
    texts = {d: windows_of(TEXT, words, d, ROWS, STEPS, drop_last=True) for d in DIRECTIONS}
    n_windows = len(texts["forward"])
    assert len(steps) == EPOCHS * n_windows
    n_updates = EPOCHS * math.ceil(n_windows / n_accumulated)
    assert len(norms) == n_updates and any(norm > NORM for norm in norms)
    sparse = {EMBEDDING} if num_samples or not tied else set()
    if num_samples:
        sparse |= {"softmax.bias", "softmax.weight"} & parameters.keys()
    recorded, n_done = iter(steps), 0
    for epoch in range(EPOCHS):
        for first in range(0, n_windows, n_accumulated):
            group = range(n_windows)[first : first + n_accumulated]
            touched: Dict[str, List[int]] = {name: [] for name in sparse}
            for window in group:
                step = next(recorded)
                torch.set_rng_state(step.random_state)
                is_reset = torch.rand(ROWS) < STATE_RESET
                drawn = [
                    F.dropout(torch.ones(*shape, DIM), p)
                    for _ in range(len(DIRECTIONS) * N_LAYERS)
                    for shape, p in (((ROWS,), DROPOUT), ((20,), RECURRENT_DROPOUT))
                ]
                masks = [each.expand(STEPS, ROWS, DIM) for each in drawn[::2]]
                naive.variables = naive_variables(parameters, tied, drawn[1::2])
                for key, state in naive.states.items():
                    naive.states[key] = tuple(part * ~is_reset[:, None] for part in state)
                losses = []
                for k, direction in enumerate(DIRECTIONS):
                    of_top = F.dropout(torch.ones(ROWS, DIM), DROPOUT).repeat_interleave(STEPS, 0)
                    tokens, targets = map(torch.tensor, texts[direction][window])
                    samples = step.samples[k] if step.samples else None
                    of_layers = masks[k * N_LAYERS :][:N_LAYERS]
                    stream = Stream(tokens, targets, samples, [*of_layers, of_top])
                    losses.append(naive.loss(0, direction, stream))
                    found = step.losses[f"{direction}_loss"]
                    assert found == pytest.approx(losses[-1].item(), rel=1e-9)
                    for name in sparse:
                        if name == EMBEDDING:
                            touched[name] += tokens.flatten().tolist()
                        if tied or name != EMBEDDING:
                            touched[name] += [*targets.flatten().tolist(), *samples.ids.tolist()]
                loss = sum(losses) / 2
                assert step.losses["loss"] == pytest.approx(loss.item(), rel=1e-9)
                (loss * STEPS / len(group)).backward()
            n_done += 1
            falling = (n_updates - n_done) / (n_updates - WARMUP)
            share = falling if n_done >= WARMUP else n_done / WARMUP
            norm = update(optimizer, average, n_done, LEARNING_RATE * share, touched)
            assert norms[n_done - 1] == pytest.approx(norm, rel=1e-8)
        metrics = json.loads(Path(f"run/metrics_epoch_{epoch}.json").read_text())
        for direction in DIRECTIONS:
            arguments = HELD_OUT, words, direction, VALIDATION_ROWS
            expected = perplexity(average._shadows, tied, *arguments)
            found = metrics[f"validation_{direction}_perplexity"]
            assert found == pytest.approx(expected, rel=1e-9)
        if epoch == metrics["best_epoch"]:
            best = {name: value.clone() for name, value in average._shadows.items()}
    for name, value in best.items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("text", [HELD_OUT, TEXT, "\n", "a", "\n\na\n\n", "b a a d c f g e h x"])
def test_evaluation_at_every_batch_size(text):
    """Of a text with rows of any length, some of them empty."""
    Path("text.txt").write_text(text)
    vocab = Vocabulary.from_files("vocab/vocabulary")
    torch.manual_seed(0)
    model = BidirectionalLanguageModel(vocab, options=OPTIONS, num_samples=0).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    words = list(vocab.get_token_to_index_vocabulary("lm_tokens"))
    text = text if text.endswith("\n") else f"{text}\n"
    for n_rows, num_steps in ((1, 1), (1, 100), (2, 3), (7, 5), (40, 4)):
        settings = {"batch_size": n_rows, "num_steps": num_steps, "drop_last": False}
        settings.update(contiguous=True, max_characters_per_token=None)
        with torch.no_grad():
            for batch in read(vocab, "text.txt", **settings):
                model(**batch)
        metrics = model.get_metrics(reset=True)
        assert model.n_predicted_words == len(text.split()) + text.count("\n")
        for direction in DIRECTIONS:
            expected = perplexity(model.state_dict(), False, text, words, direction, n_rows)
            assert metrics[f"{direction}_perplexity"] == pytest.approx(expected, rel=1e-9)
