"""A step of training, of our modules and of AllenNLP's put together in the same way."""

import itertools
import logging
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.modules.elmo_lstm import ElmoLstm
from allennlp.modules.sampled_softmax_loss import SampledSoftmaxLoss

from allennlp_elmo_plugin import BiLm, BiLmOptions, batch_to_ids
from allennlp_elmo_plugin.bilm.characters import (
    BEGIN_SENTENCE_WORD,
    END_SENTENCE_WORD,
    words_to_character_ids,
)
from allennlp_elmo_plugin.bilm.checkpoints.weights import read_weights
from allennlp_elmo_plugin.bilm.log_uniform_sampler import Samples
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.data.vocabulary import write_vocabulary_folder
from allennlp_elmo_plugin.modules.elmo_character_encoder import add_boundaries
from speed import original
from speed.report import Row, take_turns
from speed.workload import Corpus

NUM_STEPS = 20


class Batch(NamedTuple):
    """
    What a step of training reads: character ids, shape `(batch_size, NUM_STEPS - 2, 50)`, to which
    AllenNLP's module adds a begin and an end, and the targets of both directions, shape
    `(batch_size, NUM_STEPS)` each.
    """

    character_ids: torch.Tensor
    targets: torch.Tensor
    targets_reverse: torch.Tensor


def make_batch(corpus: Corpus, n_words: int, batch_size: int) -> Batch:
    rows = [[corpus.words[i] for i in corpus.word_ids(NUM_STEPS - 2)] for _ in range(batch_size)]
    targets = Corpus(n_words, seed=int(corpus.word_ids())).word_ids(2, batch_size, NUM_STEPS)
    return Batch(batch_to_ids(rows), *torch.from_numpy(targets))


def _outputs(bilm: BiLm, batch: Batch) -> List[Tuple[torch.Tensor, torch.Tensor]]:
    """
    Return for each direction the output of the last layer, shape `(n_tokens, projection_dim)`, and
    the targets `(n_tokens,)`.
    """
    boundaries = words_to_character_ids([BEGIN_SENTENCE_WORD, END_SENTENCE_WORD])
    lengths = (batch.character_ids > 0).any(-1).sum(-1)  # (batch_size,)
    tokens, _ = add_boundaries(batch.character_ids, lengths, *torch.from_numpy(boundaries).long())
    output = bilm(tokens, lengths + 2)
    packing = output.packing
    targets, targets_reverse = (packing.pack(targets) for targets in batch[1:])
    packed = {"forward": targets, "backward": targets_reverse[packing.reversal]}
    return [(output.layers[direction][-1], targets) for direction, targets in packed.items()]


class OurTraining(torch.nn.Module):
    """
    # Parameters

    options_file, weight_file : `str`
        The language model.
    n_words, n_samples : `int`
        Size of the vocabulary, number of negative samples of a direction and batch.
    precision : `str`, optional (default = `"float32"`)
        Of the matrix products.
    """

    def __init__(
        self,
        options_file: str,
        weight_file: str,
        n_words: int,
        n_samples: int,
        precision: str = "float32",
    ) -> None:
        super().__init__()
        options = BiLmOptions.from_file(options_file)
        self.bilm = BiLm(options)
        read_weights(weight_file, self.bilm)
        self.bilm.lstm.stateful = True
        self.bilm.set_precision(precision)
        self.softmax = Softmax(n_words, options.projection_dim, n_samples)
        self.softmax.precision = precision
        self.optimizer = torch.optim.Adagrad(
            self.parameters(), lr=0.2, initial_accumulator_value=1.0, eps=0.0
        )

    def loss(self, batch: Batch, samples: Optional[Samples] = None) -> torch.Tensor:
        losses = [self.softmax.loss(*each, samples) for each in _outputs(self.bilm, batch)]
        return (losses[0] + losses[1]) / 2

    def step(self, batch: Batch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(batch).backward()
        self.optimizer.step()


class AllenNlpTraining(torch.nn.Module):
    """The same with AllenNLP's character encoder, `ElmoLstm` and `SampledSoftmaxLoss`."""

    def __init__(
        self, options_file: str, weight_file: str, n_words: int, n_samples: int, sparse: bool = True
    ) -> None:
        super().__init__()
        lstm = BiLmOptions.from_file(options_file)
        self.encoder = original._ElmoCharacterEncoder(options_file, weight_file, requires_grad=True)
        self.lstm = ElmoLstm(
            input_size=lstm.projection_dim,
            hidden_size=lstm.projection_dim,
            cell_size=lstm.lstm_dim,
            num_layers=lstm.n_layers,
            memory_cell_clip_value=lstm.cell_clip,
            state_projection_clip_value=lstm.proj_clip,
            requires_grad=True,
        )
        self.lstm.load_weights(weight_file)
        self.softmax = SampledSoftmaxLoss(n_words, lstm.projection_dim, n_samples, sparse=sparse)
        self.optimizer = torch.optim.Adagrad(
            self.parameters(), lr=0.2, initial_accumulator_value=1.0, eps=1e-30
        )

    def loss(self, batch: Batch, samples: Optional[Samples] = None) -> torch.Tensor:
        if samples is not None:
            self.softmax.choice_func = lambda *_: (samples.ids.numpy(), samples.num_tries)
        tokens = self.encoder(batch.character_ids)
        # (batch_size * NUM_STEPS, 2 * projection_dim)
        top = self.lstm(tokens["token_embedding"], tokens["mask"])[-1].flatten(0, 1)
        losses = [
            self.softmax(hidden, targets.flatten())
            for hidden, targets in zip(top.chunk(2, 1), batch[1:])
        ]
        return (losses[0] + losses[1]) / (2 * top.size(0))

    def step(self, batch: Batch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(batch).backward()
        self.optimizer.step()


def equal_losses(ours: OurTraining, theirs: AllenNlpTraining, batch: Batch) -> float:
    """Return the relative difference of the losses with the same softmax and the same samples."""
    with torch.no_grad():
        theirs.softmax.softmax_w.weight.copy_(ours.softmax.weight)
        theirs.softmax.softmax_b.weight.zero_()
    choice_func = theirs.softmax.choice_func
    assert ours.softmax.sampler is not None
    samples = ours.softmax.sampler.sample()
    expected = float(theirs.loss(batch, samples))
    actual = float(ours.loss(batch, samples))
    theirs.softmax.choice_func = choice_func
    theirs.lstm.reset_states()
    ours.bilm.lstm.reset_states()
    return abs(actual / expected - 1)


def measure(
    size: str, options_file: str, weight_file: str, rounds: int, select: Callable[[str], bool]
) -> Iterator[Row]:
    """Measure training; the arguments are those of `speed.embedding.measure`."""
    corpus = Corpus()
    files = options_file, weight_file
    n_words, n_samples = (100_000, 8_192) if size in ("small", "original") else (2_000, 64)
    batches = [make_batch(corpus, n_words, 64) for _ in range(rounds + 1)]
    wanted = [name for name in _BARS if select(name)]
    if {"training step", "training step, bfloat16"} & set(wanted):
        ours = {
            name: OurTraining(*files, n_words, n_samples, precision)
            for name, precision in (
                ("training step", "float32"),
                ("training step, bfloat16", "bfloat16"),
            )
            if name in wanted or precision == "float32"
        }
        theirs = AllenNlpTraining(*files, n_words, n_samples)
        error = equal_losses(ours["training step"], theirs, batches[0])
        if error > 1e-4:
            raise AssertionError(f"the losses of {size} differ by {error} of their value")
        programs = {name: training.step for name, training in ours.items()}
        seconds = take_turns({**programs, "AllenNLP": theirs.step}, batches)
        for name in ours:
            yield Row(
                workload=name,
                size=size,
                value=seconds["AllenNLP"] / seconds[name],
                bar=_BARS[name].get(size),
                words_per_second=64 * NUM_STEPS / seconds[name],
                baseline_words_per_second=64 * NUM_STEPS / seconds["AllenNLP"],
                note=f"losses differ by {error:.0e}" if name == "training step" else "",
            )
        del ours, theirs, programs
    if "vocabulary of 800k" in wanted:
        yield _large_vocabulary(size, *files, rounds, 8 * n_words, n_samples)
    if "allennlp train" in wanted and size != "original":
        yield _whole_training(size, options_file, rounds)
    if "peak memory" in wanted and size in _BARS["peak memory"]:
        yield _peak_memory(size, *files, n_words=8 * n_words, n_samples=n_samples)


_BARS: Dict[str, Dict[str, float]] = {
    "training step": {"small": 4, "original": 2.6},
    "training step, bfloat16": {"small": 5.5, "original": 6},
    "vocabulary of 800k": {"small": 0.97, "original": 0.97},
    "allennlp train": {"small": 0.9},
    "peak memory": {"original": 5.2},
}


def _large_vocabulary(
    size: str, options_file: str, weight_file: str, rounds: int, n_words: int, n_samples: int
) -> Row:
    """Compare a step with another of an eightieth of the words, side by side."""
    files = options_file, weight_file
    few = n_words // 80
    large, small = (OurTraining(*files, n, n_samples) for n in (n_words, few))
    # The ratio is close to 1: more turns than elsewhere.
    batches = [
        tuple(make_batch(Corpus(seed=turn), n, 64) for n in (n_words, few))
        for turn in range(4 * rounds + 1)
    ]
    programs = {
        "large": lambda both: large.step(both[0]),
        "small": lambda both: small.step(both[1]),
    }
    seconds = take_turns(programs, batches)
    return Row(
        workload="vocabulary of 800k",
        size=size,
        value=seconds["small"] / seconds["large"],
        bar=_BARS["vocabulary of 800k"].get(size),
        words_per_second=64 * NUM_STEPS / seconds["large"],
        note=f"words/s, relative to {64 * NUM_STEPS / seconds['small']:,.0f} at 10k",
    )


def _whole_training(size: str, options_file: str, rounds: int) -> Row:
    """Compare `allennlp train` of a pretraining config with the bare step of the same model."""
    corpus = Corpus(20_000)
    batch_size, n_batches = 64, 8 * rounds
    with tempfile.TemporaryDirectory() as folder:
        text, vocabulary = os.path.join(folder, "text"), os.path.join(folder, "vocabulary")
        n_lines = batch_size * NUM_STEPS * n_batches // 15
        with open(text, "w", encoding="utf-8") as file:
            file.writelines(" ".join(words) + "\n" for words in corpus.sentences(n_lines))
        words = ["</S>", "<S>", "<UNK>", *dict.fromkeys(corpus.words)]
        write_vocabulary_folder(vocabulary, words)
        reader = {"type": "truncated_bptt_lm", "batch_size": batch_size, "num_steps": NUM_STEPS}
        params = Params(
            {
                "dataset_reader": reader,
                "train_data_path": text,
                "vocabulary": {"type": "from_files", "directory": vocabulary},
                "model": {
                    "type": "bidirectional_lm",
                    "options_file": options_file,
                    "num_samples": 8192 if size in ("small", "original") else 64,
                },
                "data_loader": {"type": "truncated_bptt"},
                "trainer": {
                    "num_epochs": 1,
                    "optimizer": {
                        "type": "adagrad",
                        "lr": 0.2,
                        "initial_accumulator_value": 1.0,
                        "eps": 0.0,
                    },
                    "grad_norm": 10.0,
                    "cuda_device": -1,
                },
            }
        )
        logging.disable(logging.WARNING)
        loop = TrainModel.from_params(
            params=params, serialization_dir=os.path.join(folder, "model"), local_rank=0
        )
        trainer: Any = loop.trainer
        batches = list(itertools.islice(iter(trainer.data_loader), n_batches))
        model, optimizer = trainer.model, trainer.optimizer

        def bare_step(batch: Any) -> None:
            optimizer.zero_grad(set_to_none=True)
            # No check of the order, in which batches come more than once here.
            model(**{key: value for key, value in batch.items() if key != "window"})[
                "loss"
            ].backward()
            trainer.rescale_gradients()
            optimizer.step()

        model.train()
        seconds = take_turns({"bare": bare_step}, batches[: rounds + 1])["bare"]
        start = time.perf_counter()
        trainer.train()
        whole = (time.perf_counter() - start) / len(trainer.data_loader)
        logging.disable(logging.NOTSET)
    return Row(
        workload="allennlp train",
        size=size,
        value=seconds / whole,
        bar=_BARS["allennlp train"].get(size),
        words_per_second=batch_size * NUM_STEPS / whole,
        note="words/s, relative to the bare step of the same model",
    )


def _peak_memory(size: str, *files: str, n_words: int, n_samples: int) -> Row:
    code = (
        "from speed import report, training\n"
        f"step = training.OurTraining(*{files!r}, {n_words}, {n_samples}).step\n"
        f"batch = training.make_batch(training.Corpus(), {n_words}, 64)\n"
        "for _ in range(3): step(batch)\n"
        "print(report.memory('VmHWM'))\n"
    )
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], check=True, stdout=subprocess.PIPE
    )
    return Row(
        workload="peak memory",
        size=size,
        value=float(result.stdout),
        bar=_BARS["peak memory"].get(size),
        note="GB (10^9 bytes) of the process, vocabulary of 800k; less is better",
    )
