"""Speed of a training step of our modules, and of AllenNLP's combined in the same way."""

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.modules.elmo_lstm import ElmoLstm
from allennlp.modules.sampled_softmax_loss import SampledSoftmaxLoss

from allennlp_elmo_plugin.bilm.log_uniform_sampler import Samples
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.text.vocabulary import write_vocabulary_folder
from speed.original import ElmoCharacterEncoder
from speed.report import Row, take_turns
from speed.workload import NUM_STEPS, Batch, Corpus, OurTraining, make_batch

_ROWS = 64


class AllenNlpTraining(torch.nn.Module):
    """`OurTraining` with AllenNLP's character encoder, `ElmoLstm` and `SampledSoftmaxLoss`."""

    def __init__(self, options_file: str, weight_file: str, n_words: int, n_samples: int) -> None:
        super().__init__()
        lstm = BiLmOptions.from_file(options_file)
        self.encoder = ElmoCharacterEncoder(options_file, weight_file, requires_grad=True)
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
        self.softmax = SampledSoftmaxLoss(n_words, lstm.projection_dim, n_samples, sparse=True)
        self.optimizer = torch.optim.Adagrad(
            self.parameters(), lr=0.2, initial_accumulator_value=1.0, eps=1e-30
        )

    def loss(self, batch: Batch, samples: Samples | None = None) -> torch.Tensor:
        if samples is not None:
            self.softmax.choice_func = lambda *_: (samples.ids.numpy(), samples.num_tries)
        tokens = self.encoder(batch.character_ids[:, 1:-1])  # It adds the boundaries itself.
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
    """Return the relative difference of the losses, with the same softmax and samples."""
    with torch.no_grad():
        theirs.softmax.softmax_w.weight.copy_(ours.softmax.weight)
        theirs.softmax.softmax_b.weight.zero_()
    choice_func = theirs.softmax.choice_func
    samples = ours.softmax.sampler.sample()
    expected = float(theirs.loss(batch, samples))
    actual = float(ours.loss(batch, samples))
    theirs.softmax.choice_func = choice_func
    theirs.lstm.reset_states()
    return abs(actual / expected - 1)


def measure(
    size: str, options_file: str, weight_file: str, rounds: int, select: Callable[[str], Any]
) -> Iterator[Row]:
    """Measure training; the arguments are those of `speed.embedding.measure`."""
    files = options_file, weight_file
    n_words, n_samples = (2_000, 64) if size == "tiny" else (100_000, 8_192)
    precisions = {"training step": "float32", "training step, bfloat16": "bfloat16"}
    if any(map(select, precisions)):
        corpus = Corpus()
        batches = [make_batch(corpus, n_words, _ROWS) for _ in range(rounds + 1)]
        ours = {
            name: OurTraining(size, n_words, n_samples, precision)
            for name, precision in precisions.items()
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
                words_per_second=_ROWS * NUM_STEPS / seconds[name],
                baseline_words_per_second=_ROWS * NUM_STEPS / seconds["AllenNLP"],
                note=f"losses differ by {error:.0e}" if name == "training step" else "",
            )
        del ours, theirs, programs
    if select("allennlp train") and size != "original":
        yield _whole_training(size, options_file, rounds, n_samples)


def _whole_training(size: str, options_file: str, rounds: int, n_samples: int) -> Row:
    """Compare `allennlp train` of a language model with the bare step of the same model."""
    corpus = Corpus(20_000)
    with tempfile.TemporaryDirectory() as folder:
        text, vocabulary = os.path.join(folder, "text"), os.path.join(folder, "vocabulary")
        with open(text, "w", encoding="utf-8") as file:
            for words in corpus.sentences(_ROWS * NUM_STEPS * rounds // 2):
                file.write(" ".join(words) + "\n")
        write_vocabulary_folder(vocabulary, ["</S>", "<S>", "<UNK>", *dict.fromkeys(corpus.words)])
        reader = {"type": "truncated_bptt_lm", "batch_size": _ROWS, "num_steps": NUM_STEPS}
        model_params = {"type": "bidirectional_lm", "options_file": options_file}
        adagrad = {"type": "adagrad", "lr": 0.2, "initial_accumulator_value": 1.0, "eps": 0.0}
        params = {
            "dataset_reader": reader,
            "train_data_path": text,
            "vocabulary": {"type": "from_files", "directory": vocabulary},
            "model": {**model_params, "num_samples": n_samples},
            "data_loader": {"type": "truncated_bptt"},
            "trainer": {
                "num_epochs": 1,
                "optimizer": adagrad,
                "grad_norm": 10.0,
                "cuda_device": -1,
            },
        }
        logging.disable(logging.WARNING)
        loop: Any = TrainModel.from_params(
            params=Params(params), serialization_dir=os.path.join(folder, "model"), local_rank=0
        )
        batches = list(islice(iter(loop.trainer.data_loader), rounds + 1))
        model, optimizer = loop.trainer.model, loop.trainer.optimizer

        def bare_step(batch: Any) -> None:
            optimizer.zero_grad(set_to_none=True)
            # Without "window", the order isn't checked: here batches are used more than once.
            inputs = {key: value for key, value in batch.items() if key != "window"}
            model(**inputs)["loss"].backward()
            loop.trainer.rescale_gradients()
            optimizer.step()

        model.train()
        seconds = take_turns({"bare": bare_step}, batches)["bare"]
        start = time.perf_counter()
        loop.trainer.train()
        whole = (time.perf_counter() - start) / len(loop.trainer.data_loader)
        logging.disable(logging.NOTSET)
    return Row(
        workload="allennlp train",
        size=size,
        value=seconds / whole,
        words_per_second=_ROWS * NUM_STEPS / whole,
        note="words/s, relative to the bare step of the same model",
    )
