"""The language model of ELMo with its losses, which carries states from batch to batch."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from allennlp_elmo_plugin.analysis.sentence_probabilities import perplexity_of
from allennlp_elmo_plugin.arguments import check_types
from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.characters import END_SENTENCE_WORD
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.model_call import model_call
from allennlp_elmo_plugin.bilm.options import BiLmOptions, set_options
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.pretrained.language_model import PretrainedLanguageModel
from allennlp_elmo_plugin.text.vocabulary import UNKNOWN_WORD
from allennlp_elmo_plugin.text.word_ids import IGNORED_TARGET
from allennlp_elmo_plugin.training.means import TokenMean
from allennlp_elmo_plugin.training.processes import rank, sum_over_processes, world_size
from allennlp_elmo_plugin.training.sampled_softmax_warnings import SampledSoftmaxWarnings

logger = logging.getLogger(__name__)


class LanguageModel(torch.nn.Module):
    """
    The language model of ELMo (Peters et al. 2018), trained as bilm-tf trains it: a `BiLm` with a
    `Softmax`, by truncated back-propagation through time over the batches of `TextBatches`. Each
    row carries its LSTM states from window to window. Evaluation carries separate states, which
    start from zero at every pass.

    ```python
    model = LanguageModel(options, words)
    for batch in TextBatches("train.txt", words):
        model(**batch)["loss"].backward()
    ```

    `loss` is the mean negative log likelihood of a token in nats, `0.5 * (forward + backward)`.
    Its gradient is that of `num_steps * loss`, as in bilm-tf, so that bilm-tf's learning rate and
    gradient norm apply. In distributed training each process weights its loss by its share of the
    words, so that the mean over the processes is that over all words. Don't compare the losses or
    perplexities of training with those of evaluation, which never uses the sampled softmax.

    # Parameters

    options : `Mapping[str, Any]`
        The keys of bilm-tf's options.json; see `BiLmOptions`. Only `n_tokens_vocab` is ignored: it
        is the number of words.
    words : `Sequence[str]`
        The vocabulary, in the order of its ids.
    pretrained : `PretrainedLanguageModel`, optional (default = `None`)
        A model of these options to start from; see `read_pretrained`. Words of both vocabularies
        keep their rows in the softmax and in a token embedding; the others start fresh.
    num_samples : `int` or `str`, optional (default = that of the options)
        Negative samples for a direction and batch; 0 trains with the full softmax. "auto" is 8,192,
        as in bilm-tf, for a vocabulary of at least 16,384 words, and 0 for a smaller one.
    dropout, share_embedding_softmax, bidirectional : optional (default = `None`)
        Values in place of those that the options have under these names.
    variational_dropout : `bool`, optional (default = `False`)
        Draw one mask of `dropout` for all words of a row in a window (Gal and Ghahramani 2016).
    recurrent_dropout : `float`, optional (default = `0.0`)
        The share of the weights from an LSTM's output to its next gates that are dropped for a
        window (DropConnect, Merity et al. 2018), except in layers that need no gradient.
    state_reset : `float`, optional (default = `0.0`)
        The probability that a row starts a window of training from zero rather than from its
        carried state. At 0, as in bilm-tf, large learning rates of Adam can lead to states that
        the model never reaches from zero, where evaluation starts.
    precision : `str`, optional (default = `"float32"`)
        Precision of the matrix products in training: "float32", or "bfloat16", which is faster on
        hardware that supports it. All else is float32, also under `torch.autocast`.
    source : `str`, optional (default = `"options"`)
        What errors call the options.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        words: Sequence[str],
        *,
        pretrained: PretrainedLanguageModel | None = None,
        num_samples: int | str | None = None,
        dropout: float | None = None,
        share_embedding_softmax: bool | None = None,
        bidirectional: bool | None = None,
        variational_dropout: bool = False,
        recurrent_dropout: float = 0.0,
        state_reset: float = 0.0,
        precision: str = "float32",
        source: str = "options",
        **of_base_class: Any,
    ) -> None:
        check_types(LanguageModel.__init__, locals())
        super().__init__(**of_base_class)
        if precision not in ("float32", "bfloat16"):
            raise ValueError(f"precision is {precision!r}; use float32 or bfloat16")
        for name, rate in (("recurrent_dropout", recurrent_dropout), ("state_reset", state_reset)):
            if not 0 <= rate < 1:
                raise ValueError(f"{name} is {rate!r}; use a number from 0 to below 1")
        arguments = {
            "num_samples": num_samples,
            "dropout": dropout,
            "share_embedding_softmax": share_embedding_softmax,
            "bidirectional": bidirectional,
        }
        n_words, values = len(words), dict(options)
        set_options(values, arguments, n_words)
        self.options = BiLmOptions.from_dict({**values, "n_tokens_vocab": n_words}, source)
        if pretrained is not None:
            pretrained.check_options(self.options, source)
        if num_samples is None and n_words <= self.options.n_samples:
            logger.warning(
                f"The vocabulary has {n_words:,} words, no more than the "
                f"{self.options.n_samples:,} negative samples: the full softmax is used"
            )
            self.options = self.options.for_words(n_words)
        # A pretrained model of characters has all parameters: none needs to be initialised.
        is_copy = pretrained is not None and self.options.char_cnn is not None
        self.bilm = BiLm(self.options, device="meta" if is_copy else None)
        tied: Any = self.bilm.token_layer.weight if self.options.share_embedding_softmax else None
        self.softmax = Softmax(n_words, self.options.projection_dim, self.options.n_samples, tied)
        if is_copy:
            self.bilm.to_empty(device=torch.empty(0).device)
        if pretrained is not None:
            pretrained.copy_to(self, list(words))
        self.bilm.lstm.variational_dropout = variational_dropout
        self.bilm.lstm.recurrent_dropout = recurrent_dropout
        self._state_reset = state_reset
        self._precision = precision
        # The losses of the directions in nats, and the share of unknown words
        self._means = {name: TokenMean() for name in (*self.options.directions, UNKNOWN_WORD)}
        self._special_ids = {w: words.index(w) for w in (END_SENTENCE_WORD, UNKNOWN_WORD)}
        self.n_predicted_words = 0
        """Words, sentence ends included, that each direction predicted for the last metrics."""
        sampler = self.softmax.sampler
        self._warn = None
        if sampler and rank() == 0:
            self._warn = SampledSoftmaxWarnings(sampler, self._special_ids.values())
        # LSTM states and the number of the last window, in training (`True`) and evaluation
        self._carried = {True: CarriedState(), False: CarriedState()}
        self._last_window: dict[bool, int | None] = {True: None, False: None}

    @model_call
    def forward(
        self,
        tokens: torch.Tensor,
        targets: torch.Tensor,
        tokens_reverse: torch.Tensor | None = None,
        targets_reverse: torch.Tensor | None = None,
        window: torch.Tensor | None = None,
        character_ids: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """
        Return `loss`, `forward_loss` and, unless forward only, `backward_loss`, in nats a token.

        # Parameters

        tokens, tokens_reverse : `torch.Tensor`
            What each direction reads: character ids, shape `(batch_size, num_steps, 50)`, or
            vocabulary ids, shape `(batch_size, num_steps)`.
        targets, targets_reverse : `torch.Tensor`
            Vocabulary ids of the next words, -100 for padding, shape `(batch_size, num_steps)`.
        window : `torch.Tensor`, optional (default = `None`)
            The number of the window in its pass, shape `(batch_size,)`. Without it, the order of
            windows isn't checked, and evaluation never starts from zero by itself.
        character_ids : `torch.Tensor`, optional (default = `None`)
            Of each distinct word of the batch, shape `(n_words, 50)`. The tokens, shape
            `(batch_size, num_steps)`, are then their places in it.
        """
        is_spelled = character_ids is None and tokens.dim() == 3
        self._check_reader(tokens if is_spelled else character_ids, tokens_reverse)
        self.bilm.set_precision(self._precision if self.training else "float32")
        self.softmax.precision = self.bilm.precision
        carried = self._carried[self.training]
        all_targets = {"forward": targets}
        if self.options.bidirectional:
            all_targets["backward"] = targets_reverse  # type: ignore[assignment]
        counts = {name: (ids != IGNORED_TARGET).sum(1) for name, ids in all_targets.items()}
        for word, index in self._special_ids.items():
            counts[word] = (targets == index).sum(1)
        if window is not None:
            counts["window"] = window
        # In one copy from a GPU; shape (batch_size,) each
        counts = dict(zip(counts, torch.stack(list(counts.values())).cpu()))
        if window is not None:
            self._follow(int(counts.pop("window")[0]))
        if self.training and self._state_reset:
            carried.reset(torch.rand(tokens.size(0), device="cpu") < self._state_reset)
        lengths, lengths_reverse = counts["forward"], counts.get("backward")
        output = self.bilm(tokens, lengths, tokens_reverse, lengths_reverse, carried, character_ids)
        # Of all processes, which must all run this: they wait for each other.
        n_of = {name: int(rows.sum()) for name, rows in counts.items()}
        totals = sum_over_processes(torch.tensor([*n_of.values()])).tolist()
        n_of_all = dict(zip(n_of, totals))
        losses, sums = {}, []
        for direction, layers in output.layers.items():
            packing = output.packings[direction]
            packed_targets = packing.pack(all_targets[direction])  # (n_tokens,)
            top = self.bilm.lstm.drop(layers[-1], packing)  # (n_tokens, projection_dim)
            loss = self._loss(top, packed_targets)
            sums.append(loss.detach() * n_of[direction])
            if world_size() > 1:
                loss = loss * (n_of[direction] * world_size() / max(n_of_all[direction], 1))
            losses[direction] = loss
        # They stay on a GPU, so that it need not be waited for.
        for direction, total in zip(losses, sum_over_processes(torch.stack(sums))):
            self._means[direction].add(total.double(), n_of_all[direction])
        n_words = n_of_all["forward"] - n_of_all[END_SENTENCE_WORD]
        self._means[UNKNOWN_WORD].add(n_of_all[UNKNOWN_WORD], n_words)
        loss = torch.stack(list(losses.values())).mean()
        if self.training and world_size() > 1 and 0 in map(n_of.get, losses):
            # Every process must run a backward pass, which gives each parameter whose gradient is
            # dense a gradient, if only zero.
            sparse = {id(parameter) for parameter in self.sparse_gradient_parameters()}
            dense = [p for p in self.parameters() if p.requires_grad and id(p) not in sparse]
            zero = loss.new_zeros((), requires_grad=True)
            loss = loss + sum((p.reshape(-1)[:0].sum() for p in dense), zero)
        if self.training:
            # The value is that of `loss`, the gradient that of `num_steps * loss`.
            loss = loss.detach() + targets.size(1) * (loss - loss.detach())
        return {"loss": loss, **{f"{name}_loss": value.detach() for name, value in losses.items()}}

    def _loss(self, top: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if targets.size(0) == 0:
            # The text of this direction, or of this process, may end before the others.
            return top.sum()
        if not self.training:
            return -self.softmax.log_probabilities(top, targets).mean()
        if self._warn is not None:
            self._warn(targets)
        return self.softmax.loss(top, targets)

    def _check_reader(
        self, character_ids: torch.Tensor | None, tokens_reverse: torch.Tensor | None
    ) -> None:
        n_characters = self.options.max_characters_per_token
        width = None if character_ids is None else character_ids.size(-1)
        if width != n_characters:
            raise ValueError(
                f"The reader gives words of {width} characters, but the model reads words of "
                f"{n_characters}: set max_characters_per_token of the reader to that number. "
                "(None is null, for words of the vocabulary, which options without char_cnn read.)"
            )
        if self.options.bidirectional and tokens_reverse is None:
            raise ValueError("bidirectional is true in the model, but not in the reader")

    def _follow(self, number: int) -> None:
        """Check that this window is the next one, and reset evaluation at every new pass."""
        previous = self._last_window[self.training]
        if previous is not None and number not in (0, previous + 1):
            raise ValueError(
                f"The data loader changed the order of the text: window {number} follows window "
                f'{previous}. Use the data loader "truncated_bptt"'
            )
        self._last_window[self.training] = number
        if number == 0 and not self.training:
            self._carried[False].reset()

    def sparse_gradient_parameters(self) -> list[torch.nn.Parameter]:
        """Return the parameters whose gradients in training are sparse."""
        is_sampled = self.softmax.sampler is not None
        sparse: list[Any] = [self.softmax.weight, self.softmax.bias] if is_sampled else []
        if self.options.char_cnn is None and not self.options.share_embedding_softmax:
            sparse.append(self.bilm.token_layer.weight)
        return [parameter for parameter in sparse if parameter.requires_grad]

    def training_state(self) -> dict[str, Any]:
        """Return all state except the parameters, as tensors and plain Python values."""
        sampler = self.softmax.sampler
        return {
            "carried": {mode: carried.state_dict() for mode, carried in self._carried.items()},
            "last_window": dict(self._last_window),
            "means": {name: mean.state_dict() for name, mean in self._means.items()},
            "sampler": None if sampler is None else sampler.state_dict(),
        }

    def load_training_state(self, state: dict[str, Any]) -> None:
        """Restore what `training_state` returned."""
        for mode, carried in self._carried.items():
            carried.states = state["carried"][mode]
        self._last_window.update(state["last_window"])
        for name, mean in self._means.items():
            vars(mean).update(state["means"][name])
        if self.softmax.sampler is not None:
            self.softmax.sampler.load_state_dict(state["sampler"])

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        """
        Return `perplexity`, `exp` of the mean loss over directions and tokens, those of the
        directions, `forward_perplexity` and `backward_perplexity`, and the share `unknown_words`.
        """
        self.n_predicted_words = int(self._means["forward"].n_tokens)
        means = {name: mean.get_metric(reset) for name, mean in self._means.items()}
        unknown = means.pop(UNKNOWN_WORD)
        perplexities = {
            f"{direction}_perplexity": perplexity_of(loss) if self.n_predicted_words else 0.0
            for direction, loss in means.items()
        }
        # The mean of the losses is the geometric mean of the perplexities.
        mean = math.prod(perplexities.values()) ** (1 / len(perplexities))
        return {"perplexity": mean, **perplexities, "unknown_words": unknown}
