"""The AllenNLP model that trains a `BiLm` as bilm-tf does."""

import logging
import math
import numbers
import os
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
import torch.distributed as dist
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import is_distributed, is_global_primary
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.nn import RegularizerApplicator
from allennlp.nn.parallel import DdpAccelerator
from allennlp.nn.util import dist_reduce_sum

from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.kernels.model_call import model_call
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.data.lexicon import IGNORED_TARGET
from allennlp_elmo_plugin.data.vocabulary import LM_NAMESPACE, check_vocabulary
from allennlp_elmo_plugin.data.windows import check_window_order
from allennlp_elmo_plugin.files.model_file_names import OPTIONS_FILE
from allennlp_elmo_plugin.models.frequency_order import FrequencyOrderCheck
from allennlp_elmo_plugin.models.pretrained import PretrainedLanguageModel, read_pretrained
from allennlp_elmo_plugin.models.token_perplexity import AgreeingMetrics, TokenPerplexity
from allennlp_elmo_plugin.modules.downloads import cached_path
from allennlp_elmo_plugin.modules.language_model_archive import set_options

logger = logging.getLogger(__name__)

_PRECISIONS = ("float32", "bfloat16")


@Model.register("bidirectional_lm")
class BidirectionalLanguageModel(Model):
    """
    The language model of ELMo (Peters et al. 2018), trained as bilm-tf trains it: a `BiLm` with a
    `Softmax`, trained by truncated back-propagation through time over the windows of the dataset
    reader `truncated_bptt_lm`. LSTM states are carried from window to window, row by row.
    Evaluation carries separate states, which start from zero at every pass.

    `loss` is the mean negative log likelihood of a token in nats, `0.5 * (forward + backward)`.
    Its gradient is that of `num_steps * loss`, as in bilm-tf, whose learning rate and gradient norm
    (`all_clip_norm_val`) fit it. In distributed training each process weights its loss by its share
    of the words, so that the mean of the processes is that of all words.

    In training the loss is that of the sampled softmax unless `num_samples` is 0, in evaluation
    always that of the full one. Don't compare the two, or the perplexities that follow from them; a
    warning says so when training starts.

    # Parameters

    vocab : `Vocabulary`
        With the namespace `lm_tokens` that `allennlp elmo-vocab` writes.
    options : `Dict[str, Any]`, optional (default = `None`)
        The keys of bilm-tf's options.json. Of its keys for training, the model uses `dropout`,
        `sample_softmax`, `n_negative_samples_batch` and `share_embedding_softmax`. Without
        `char_cnn` it has a token embedding.
    options_file : `str`, optional (default = `None`)
        An options.json, in place of `options`.
    pretrained_file : `str`, optional (default = `None`)
        A language model to start from: an archive of a `bidirectional_lm`; a folder or zip archive
        with options.json and weights.hdf5 or model.hdf5, and optionally softmax.hdf5 and vocab.txt,
        as `elmo-export` writes them; a folder with a checkpoint of bilm-tf and its vocabulary; or a
        short name. See `find_model`. Its options are the default. If its vocabulary differs, the
        words of both keep their rows in the softmax and in a token embedding, and the others start
        fresh.

        The options are also written to `options.json` in the folder of the training run. With
        `"include_in_archive": ["options.json"]` in the configuration, the archive contains them and
        no longer needs the pretrained model.
    num_samples : `Union[int, str]`, optional (default = that of the options)
        Negative samples for a direction and batch; 0 trains with the full softmax. "auto" is 8,192,
        as in bilm-tf, for a vocabulary of at least 16,384 words, and 0 for a smaller one.
    dropout : `float`, optional (default = that of the options)
        On the input of every LSTM layer and on the output of the last.
    variational_dropout : `bool`, optional (default = `False`)
        Draw one mask of `dropout` for all words of a row in a window (Gal and Ghahramani 2016).
    recurrent_dropout : `float`, optional (default = `0.0`)
        The share of the weights between an LSTM's output and its next gates that a window is
        computed without (DropConnect, Merity et al. 2018). Layers that need no gradient, or whose
        submodules were replaced, have none.
    state_reset : `float`, optional (default = `0.0`)
        The probability of a row to start a window of training from zero rather than from its
        carried state. Where no row ever does, as in bilm-tf, a model can end up in states that it
        never reaches from zero, where evaluation and embedding start; large learning rates of Adam
        lead there.
    share_embedding_softmax : `bool`, optional (default = that of the options)
        Whether the softmax's weight is the token embedding.
    bidirectional : `bool`, optional (default = that of the options)
        `false` for a model with the forward direction only.
    precision : `str`, optional (default = `"float32"`)
        Precision of the matrix products in training: "float32", or "bfloat16", which is faster on
        hardware that supports it. Parameters and the LSTMs' cells are always float32, and so
        is evaluation, also under `torch.autocast`. The trainer's `use_amp` is refused.
    regularizer, serialization_dir, ddp_accelerator
        Those of AllenNLP's `Model`.
    """

    default_predictor = "bidirectional_lm"

    def __init__(
        self,
        vocab: Vocabulary,
        options: Optional[Dict[str, Any]] = None,
        options_file: Optional[str] = None,
        pretrained_file: Optional[str] = None,
        num_samples: Union[int, str, None] = None,
        dropout: Optional[float] = None,
        variational_dropout: bool = False,
        recurrent_dropout: float = 0.0,
        state_reset: float = 0.0,
        share_embedding_softmax: Optional[bool] = None,
        bidirectional: Optional[bool] = None,
        precision: str = "float32",
        regularizer: RegularizerApplicator = None,  # type: ignore[assignment]
        serialization_dir: Optional[str] = None,
        ddp_accelerator: Optional[DdpAccelerator] = None,
    ) -> None:
        super().__init__(vocab, regularizer, serialization_dir, ddp_accelerator)
        n_words = check_vocabulary(vocab)
        pretrained = None
        if pretrained_file is not None:
            try:
                pretrained = read_pretrained(pretrained_file)
            except (FileNotFoundError, ValueError) as error:
                raise ConfigurationError(f"pretrained_file: {error}") from error
        values, source = _read_options(options, options_file, pretrained, self.serialization_dir)
        arguments = {
            "num_samples": num_samples,
            "dropout": dropout,
            "share_embedding_softmax": share_embedding_softmax,
            "bidirectional": bidirectional,
        }
        try:
            set_options(values, arguments, n_words)
            checked = BiLmOptions.from_dict(values, source=source)
            if checked.n_tokens_vocab not in (None, n_words):
                raise ValueError(
                    f'{source}: "n_tokens_vocab" is {checked.n_tokens_vocab}, but the vocabulary '
                    f"has {n_words} words; leave the key out to take the vocabulary's size"
                )
            self.options = replace(checked, n_tokens_vocab=n_words)
            if pretrained is not None:
                pretrained.check_options(self.options, source)
                if num_samples is None and self.options.n_negative_samples_batch >= n_words:
                    # The published options lack the number, and bilm-tf's default is too large.
                    self.options = replace(self.options, sample_softmax=False)
            if pretrained is None or self.options.char_cnn is None:
                self.bilm = BiLm(self.options)
            else:  # All its parameters are pretrained: no words can be new to it.
                bilm = BiLm(self.options, device="meta")
                self.bilm = bilm.to_empty(device=torch.empty(0).device)
            shared: Any = None
            if self.options.share_embedding_softmax:
                shared = self.bilm.token_layer.weight
            self.softmax = Softmax(
                n_words,
                self.options.projection_dim,
                self.options.n_negative_samples_batch if self.options.sample_softmax else 0,
                shared,
            )
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        self._perplexities = {direction: TokenPerplexity() for direction in self.options.directions}
        self.n_predicted_words = 0
        """How many words, sentence ends included, a direction predicted for the last metrics."""
        if pretrained is not None:
            indexed = vocab.get_index_to_token_vocabulary(LM_NAMESPACE)
            pretrained.copy_to(self, [indexed[index] for index in range(n_words)])
            if self.serialization_dir is not None and is_global_primary():
                self.options.write(os.path.join(self.serialization_dir, OPTIONS_FILE))
        for name, rate in (("recurrent_dropout", recurrent_dropout), ("state_reset", state_reset)):
            if not isinstance(rate, numbers.Real) or not 0 <= rate < 1:
                raise ConfigurationError(
                    f"{name} is {rate!r}; it must be a number, at least 0 and below 1"
                )
        self.bilm.lstm.variational_dropout = variational_dropout
        self.bilm.lstm.recurrent_dropout = recurrent_dropout
        self._state_reset = state_reset
        if precision not in _PRECISIONS:
            raise ConfigurationError(f"precision is {precision!r}; it must be one of {_PRECISIONS}")
        self._precision = precision
        self._check_order = FrequencyOrderCheck(n_words)
        self._warned_of_samples = False
        # LSTM states and number of the last window, in training (`True`) and in evaluation.
        self._carried = {True: CarriedState(), False: CarriedState()}
        self._last_window: Dict[bool, Optional[int]] = {True: None, False: None}

    @model_call
    def forward(
        self,
        tokens: torch.Tensor,
        targets: torch.Tensor,
        tokens_reverse: Optional[torch.Tensor] = None,
        targets_reverse: Optional[torch.Tensor] = None,
        window: Optional[torch.Tensor] = None,
    ) -> Dict[str, torch.Tensor]:
        """
        # Parameters

        tokens : `torch.Tensor`
            Character ids, shape `(batch_size, num_steps, 50)`, or vocabulary ids, shape
            `(batch_size, num_steps)`, that the forward direction reads.
        targets : `torch.Tensor`
            Vocabulary ids of the words that follow, shape `(batch_size, num_steps)`; -100 after the
            last.
        tokens_reverse, targets_reverse : `torch.Tensor`, optional (default = `None`)
            The same for the backward direction's stream.
        window : `torch.Tensor`, optional (default = `None`)
            Number of the window in its pass, number of the row and of all rows, shape
            `(batch_size, 3)`. Without it, the data loader's order is not checked, and evaluation
            never starts from zero by itself.

        # Returns

        `Dict[str, torch.Tensor]`
            `loss`, `forward_loss` and, unless forward only, `backward_loss`: scalars, in nats a
            token.
        """
        self._check_inputs(tokens, tokens_reverse)
        precision = self._precision if self.training else "float32"
        self.bilm.set_precision(precision)
        self.softmax.precision = precision
        carried = self._carried[self.training]
        all_targets = {"forward": targets}
        if self.options.bidirectional:
            all_targets["backward"] = targets_reverse  # type: ignore[assignment]
        facts = {key: (value != IGNORED_TARGET).sum(1) for key, value in all_targets.items()}
        if window is not None:
            facts["window"] = window
        facts = _to_host(facts)
        if window is not None:
            self._follow(facts["window"])
        if self.training and self._state_reset:
            carried.reset_batch(torch.rand(tokens.size(0), device="cpu") < self._state_reset)
        output = self.bilm(
            tokens,
            facts["forward"],
            tokens_reverse if self.options.bidirectional else None,
            facts.get("backward"),
            carried,
        )
        losses = {}
        for direction, layers in output.layers.items():
            packing = output.packings[direction]
            packed_targets = packing.pack(all_targets[direction])  # (n_tokens,)
            top = self.bilm.lstm.drop(layers[-1], packing)  # (n_tokens, projection_dim)
            losses[direction] = self._loss(direction, top, packed_targets)
        loss = torch.stack(list(losses.values())).mean()
        n_tokens = [packing.n_tokens for packing in output.packings.values()]
        if self.training and is_distributed() and 0 in n_tokens:
            # Every process must have a gradient, if only zero, for every parameter; and a backward
            # pass, also if only parameters with sparse gradients are trained.
            sparse = {id(parameter) for parameter in self.sparse_gradient_parameters()}
            loss = loss + loss.new_zeros((), requires_grad=True)
            loss = loss + sum(
                p.reshape(-1)[:0].sum()
                for p in self.parameters()
                if p.requires_grad and id(p) not in sparse
            )
        outputs = {f"{direction}_loss": value.detach() for direction, value in losses.items()}
        outputs["loss"] = loss
        if self.training and loss.requires_grad:
            num_steps = targets.size(1)
            loss.register_hook(lambda gradient: gradient * num_steps)
        return outputs

    def _loss(self, direction: str, top: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        n_tokens = targets.size(0)
        if n_tokens == 0:
            # The text of this direction, or of this process, may end before the others.
            loss = top.sum()
        elif self.training:
            loss = self.softmax.loss(top, targets)
            if self.softmax.sampler is not None:
                if not self._warned_of_samples:
                    self._warned_of_samples = True
                    logger.warning(
                        "The loss and the perplexities of training are those of a softmax over %d "
                        "samples, which is easier: do not compare them with those of validation "
                        "and evaluation, which are of the full softmax over %d words",
                        self.softmax.sampler.n_samples,
                        self.softmax.bias.size(0),
                    )
                self._check_order(targets)
        else:
            loss = -self.softmax.log_probabilities(top, targets).mean()
        # All processes must run this for each direction: they wait for each other.
        self._perplexities[direction](loss.detach() * n_tokens, n_tokens)
        if is_distributed():
            loss = loss * (n_tokens * dist.get_world_size() / max(dist_reduce_sum(n_tokens), 1))
        return loss

    def _check_inputs(self, tokens: torch.Tensor, tokens_reverse: Optional[torch.Tensor]) -> None:
        char_cnn = self.options.char_cnn
        if char_cnn is None and tokens.dim() != 2:
            raise ConfigurationError(
                "The model has a token embedding, but the dataset reader gives it characters: set "
                "max_characters_per_token to null in the reader, or char_cnn in the options"
            )
        if char_cnn is not None and (
            tokens.dim() != 3 or tokens.size(2) != char_cnn.max_characters_per_token
        ):
            raise ConfigurationError(
                "The model reads words of "
                f"{char_cnn.max_characters_per_token} characters, but the dataset reader gives it "
                f"a tensor of shape {tuple(tokens.shape)}: set its max_characters_per_token to "
                f"{char_cnn.max_characters_per_token}"
            )
        if self.options.bidirectional and tokens_reverse is None:
            raise ConfigurationError(
                "The model has a backward direction, but the dataset reader gives it nothing to "
                "read: set bidirectional to true in the reader, or to false in the model"
            )

    def _follow(self, window: torch.Tensor) -> None:
        """Check that this window is the next one, and reset evaluation at every new pass."""
        try:
            number = check_window_order(window, self._last_window[self.training])
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        self._last_window[self.training] = number
        if number == 0 and not self.training:
            self._carried[False].reset()

    def sparse_gradient_parameters(self) -> List[torch.nn.Parameter]:
        """
        Return the parameters whose gradients in training are sparse, for `SparseDdpAccelerator`.
        """
        is_sampled = self.softmax.sampler is not None
        found: List[Any] = [self.softmax.weight, self.softmax.bias] if is_sampled else []
        if self.options.char_cnn is None and not self.options.share_embedding_softmax:
            found.append(self.bilm.token_layer.weight)
        return [parameter for parameter in found if parameter.requires_grad]

    def training_state(self) -> Dict[str, Any]:
        """
        Return all state but the parameters: the LSTM states and the number of the window (in
        training and in evaluation), the metrics' sums and the state of the sampler. Tensors and
        plain Python values.
        """
        sampler = self.softmax.sampler
        return {
            "carried": {mode: carried.state_dict() for mode, carried in self._carried.items()},
            "last_window": dict(self._last_window),
            "perplexities": {key: value.state_dict() for key, value in self._perplexities.items()},
            "sampler": None if sampler is None else sampler.state_dict(),
        }

    def load_training_state(self, state: Dict[str, Any]) -> None:
        """Restore what `training_state` returned."""
        for mode, carried in self._carried.items():
            carried.load_state_dict(state["carried"][mode])
        self._last_window.update(state["last_window"])
        for direction, perplexity in self._perplexities.items():
            perplexity.load_state_dict(state["perplexities"][direction])
        if self.softmax.sampler is not None:
            self.softmax.sampler.load_state_dict(state["sampler"])

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Return `perplexity`, `exp` of the mean loss over directions and tokens, and that of each
        direction, `forward_perplexity` and `backward_perplexity`. A `loss` that is set in them
        becomes the logarithm of `perplexity`.
        """
        self.n_predicted_words = int(self._perplexities["forward"].n_tokens)
        metrics = {
            f"{direction}_perplexity": perplexity.get_metric(reset)
            for direction, perplexity in self._perplexities.items()
        }
        # The mean of the losses is the geometric mean of the perplexities.
        mean = math.prod(metrics.values()) ** (1 / len(metrics))
        return AgreeingMetrics(perplexity=mean, **metrics)


def _to_host(tensors: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    """Return tensors of integers on the CPU, copied from a GPU in one transfer."""
    numbers = torch.cat([each.flatten() for each in tensors.values()]).cpu()
    parts = numbers.split([each.numel() for each in tensors.values()])
    return {key: part.view(tensors[key].shape) for key, part in zip(tensors, parts)}


def _read_options(
    options: Optional[Dict[str, Any]],
    options_file: Optional[str],
    pretrained: Optional[PretrainedLanguageModel],
    serialization_dir: Optional[str],
) -> Tuple[Dict[str, Any], str]:
    """Return the keys of options.json, and where they come from."""
    if options is not None and options_file is not None:
        raise ConfigurationError(
            "bidirectional_lm takes either options (the keys of options.json) or options_file, not "
            "both"
        )
    if options is not None:
        return dict(options), "options"
    if options_file is None and pretrained is not None:
        # The vocabulary may differ.
        return replace(pretrained.options, n_tokens_vocab=None).to_dict(), pretrained.source
    if options_file is None:
        # In an archive, the options of a model that was trained from a `pretrained_file`.
        options_file = os.path.join(serialization_dir or "", OPTIONS_FILE)
        if serialization_dir is None or not os.path.exists(options_file):
            raise ConfigurationError(
                "bidirectional_lm needs either options (the keys of options.json), options_file or "
                "pretrained_file. (The archive of a model that was trained from a pretrained_file "
                f'has them where the configuration says "include_in_archive": ["{OPTIONS_FILE}"].)'
            )
    try:
        return BiLmOptions.from_file(cached_path(options_file)).to_dict(), options_file
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
