"""A step of training, of our modules and of AllenNLP's put together in the same way."""

from typing import NamedTuple, Optional

import torch
from allennlp.modules.elmo_lstm import ElmoLstm
from allennlp.modules.sampled_softmax_loss import SampledSoftmaxLoss

from allennlp_elmo_plugin import BiLm, BiLmOptions, batch_to_ids
from allennlp_elmo_plugin.bilm.log_uniform_sampler import Samples
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.bilm.weights import read_weights
from allennlp_elmo_plugin.modules.elmo import _add_boundary_characters
from benchmarks.models import allennlp_elmo
from benchmarks.workload import Corpus

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
        tokens, lengths = _add_boundary_characters(batch.character_ids)
        output = self.bilm(tokens, lengths)
        losses = [
            self.softmax.loss(
                output.layers[direction][-1],
                output.packing.pack(targets, backward=direction == "backward"),
                samples,
            )
            for direction, targets in zip(("forward", "backward"), batch[1:])
        ]
        return (losses[0] + losses[1]) / 2

    def step(self, batch: Batch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(batch).backward()
        self.optimizer.step()


class AllenNlpTraining(torch.nn.Module):
    """
    The same of AllenNLP's character encoder, `ElmoLstm` and `SampledSoftmaxLoss`.
    """

    def __init__(
        self, options_file: str, weight_file: str, n_words: int, n_samples: int, sparse: bool = True
    ) -> None:
        super().__init__()
        lstm = BiLmOptions.from_file(options_file)
        self.encoder = allennlp_elmo()._ElmoCharacterEncoder(
            options_file, weight_file, requires_grad=True
        )
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
    """
    How far the two losses are apart, relatively, with the same softmax and the same samples.
    """
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
