"""`Elmo`: representations for task models, learned mixes of the language model's layers."""

import logging
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, NoReturn, Optional, Union

import torch

from allennlp_elmo_plugin.bilm.carried_state import InitialState
from allennlp_elmo_plugin.bilm.characters import check_sentences, sentences_to_character_ids
from allennlp_elmo_plugin.bilm.kernels.matrix_product import Precision
from allennlp_elmo_plugin.bilm.model import BiLmOutput
from allennlp_elmo_plugin.bilm.model_call import is_plain, refuse_graphs
from allennlp_elmo_plugin.elmo.elmo_bilm import MAX_CACHED_WORDS, ElmoBiLm, padded_layers
from allennlp_elmo_plugin.elmo.scalar_mix import ScalarMix

logger = logging.getLogger(__name__)

Output = dict[str, torch.Tensor | list[torch.Tensor]]


class Elmo(torch.nn.Module):
    """
    ELMo representations of sentences: learned mixes of the layers of a biLM (Peters et al. 2018,
    equation 1). A drop-in for `allennlp.modules.elmo.Elmo` of AllenNLP 2.10.1, with its arguments,
    outputs and parameter names.

    ```python
    elmo = Elmo("tiny", dropout=0.0)  # or Elmo("options.json", "weights.hdf5", 1, dropout=0.0)
    output = elmo(batch_to_ids([["A", "sentence", "."]]))
    output["elmo_representations"][0]    # (1, 3, 2 * projection_dim)
    ```

    A new module is in training mode, in which dropout, 0.5 by default, changes the vectors on every
    call: pass `dropout=0.0`, or call `elmo.eval()`. `ElmoEmbedder` has no dropout.
    `elmo._elmo_lstm._elmo_lstm.reset_states()` forgets carried states; see `initial_state`.

    # Parameters

    options_file, weight_file : `str | PathLike[str]`
        options.json and weights.hdf5 of the biLM. Or `options_file` alone names a whole model: a
        folder, an archive or a short name, such as `"tiny"`. See `find_model`. The second argument
        may then be the next one: `Elmo("tiny", 2)`.
    num_output_representations : `int`, optional (default = `1`)
        How many mixes to learn, each with weights of its own.
    requires_grad, do_layer_norm : `bool`, optional (default = `False`)
        Whether the biLM itself is trained, and whether layers are normalised before they are mixed.
    vocab_to_cache : `List[str]`, optional (default = `None`)
        Words whose vectors are computed once, here; `forward` then takes their indices in this list
        as `word_inputs`.
    keep_sentence_boundaries : `bool`, optional (default = `False`)
        Whether the representations of `<S>` and `</S>` are part of the output.
    scalar_mix_parameters : `List[float]`, optional (default = `None`)
        Fixed weights of the layers, before the softmax, in place of learned ones.
    module : `torch.nn.Module`, optional (default = `None`)
        A biLM in place of the two files and its settings, with `num_layers`, `get_output_dim()`,
        and a `forward` that returns `activations` and `mask`. As in AllenNLP, `requires_grad` is
        then ignored.
    initial_state : `str`, optional (default = `"carried"`)
        The LSTM state at the start of a sentence: `"carried"`, what the batch before left in the
        same row, as in AllenNLP; `"zero"`; or `"settled"`, in which the model settles when it reads
        only sentence boundaries. With the latter two, a sentence's vectors depend neither on
        earlier batches nor on the rest of the batch.
    precision : `str`, optional (default = `"float32"`)
        Of the biLM's matrix products: `"float32"`; `"bfloat16"`, which is faster on hardware that
        has it; or `"int8"`, which is faster on the CPU for one sentence at a time, and can't be
        combined with `requires_grad`.
    max_cached_words : `int`, optional (default = `50000`)
        How many words' vectors are kept from batch to batch, where no gradient is needed.
    """

    def __init__(
        self,
        options_file: Union[str, PathLike[str], None],
        weight_file: Union[str, PathLike[str], int, None] = None,
        num_output_representations: int = 1,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Optional[Sequence[str]] = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Optional[Sequence[float]] = None,
        module: Optional[torch.nn.Module] = None,
        initial_state: InitialState = "carried",
        precision: Precision = "float32",
        max_cached_words: int = MAX_CACHED_WORDS,
    ) -> None:
        super().__init__()
        if isinstance(weight_file, int):
            if num_output_representations != 1:
                raise ValueError("num_output_representations is given twice: leave out one")
            num_output_representations, weight_file = weight_file, None
        if num_output_representations < 1:
            raise ValueError("num_output_representations must be at least 1")
        settings = (requires_grad, vocab_to_cache, initial_state, precision, max_cached_words)
        if module is None:
            module = ElmoBiLm(options_file, weight_file, *settings)
        elif (options_file, weight_file, *settings[2:]) != (
            (None, None, "carried", "float32", MAX_CACHED_WORDS)
        ):
            raise ValueError(
                "module has its own files and settings: leave out options_file, weight_file, "
                "initial_state, precision and max_cached_words"
            )
        self._elmo_lstm = module
        self._has_cached_vocab = vocab_to_cache is not None
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = torch.nn.Dropout(p=dropout)
        # Programs replace mixes under their names, and set or extend AllenNLP's list of them.
        self._scalar_mixes: Any = []
        n_layers, is_trainable = module.num_layers, scalar_mix_parameters is None
        for k in range(num_output_representations):
            mix = ScalarMix(n_layers, do_layer_norm, scalar_mix_parameters, is_trainable)  # type: ignore
            self.add_module(f"scalar_mix_{k}", mix)
            self._scalar_mixes.append(mix)

    @property
    def bilm(self) -> torch.nn.Module:
        """The language model: an `ElmoBiLm`, unless there is another `module`."""
        return self._elmo_lstm

    @property
    def _mixes(self) -> list[Any]:
        return [getattr(self, f"scalar_mix_{k}") for k in range(len(self._scalar_mixes))]

    def get_output_dim(self) -> int:
        return self._elmo_lstm.get_output_dim()  # type: ignore[operator]

    def forward(self, inputs: torch.Tensor, word_inputs: Optional[torch.Tensor] = None) -> Output:
        """
        # Parameters

        inputs : `torch.Tensor`
            Character ids, shape `(batch_size, timesteps, 50)` or `(..., timesteps, 50)`.
        word_inputs : `torch.Tensor`, optional (default = `None`)
            Indices in `vocab_to_cache`, shape `(batch_size, timesteps)` or `(..., timesteps)`.

        # Returns

        `elmo_representations`, a list of `num_output_representations` tensors of shape
        `(batch_size, timesteps, n_directions * projection_dim)`, and `mask`, shape
        `(batch_size, timesteps)`; with the leading dimensions of the input.
        """
        if word_inputs is not None and not self._has_cached_vocab:
            logger.warning("Elmo got word_inputs, but has no vocab_to_cache: they are not used.")
            word_inputs = None
        for tensor in (inputs, inputs if word_inputs is None else word_inputs):
            if not isinstance(tensor, torch.Tensor):
                raise ValueError(
                    f"got an input of the type {type(tensor).__name__}, but Elmo reads a tensor of "
                    "character ids, batch_to_ids(sentences), and as word_inputs another of indices"
                )
        leading_shape = inputs.shape[:-2]
        if inputs.dim() > 3:
            inputs = inputs.flatten(0, -3)
        if word_inputs is not None:
            leading_shape = word_inputs.shape[:-1]
            word_inputs = word_inputs.flatten(0, -2)
        bilm = self._elmo_lstm
        if is_plain(bilm, ElmoBiLm):
            output = self._mix(bilm.run_ids(inputs, word_inputs))  # type: ignore[operator]
        else:
            output = self._mix_padded(bilm(inputs, word_inputs))
        representations, mask = output["elmo_representations"], output["mask"]
        return {
            "elmo_representations": [x.view(*leading_shape, *x.shape[1:]) for x in representations],
            "mask": mask.view(*leading_shape, mask.size(1)),
        }

    def __prepare_scriptable__(self) -> NoReturn:
        """Called by `torch.jit.script`."""
        refuse_graphs()

    def embed_sentences(self, sentences: Iterable[Sequence[str]]) -> Output:
        """Return what `forward` does, from words: faster, as known words need no character ids."""
        bilm = self._elmo_lstm
        if not isinstance(bilm, ElmoBiLm):
            raise ValueError("embed_sentences needs Elmo's own biLM, not another module")
        sentences = check_sentences(sentences)
        if is_plain(bilm, ElmoBiLm):
            return self._mix(bilm.run_sentences(sentences))
        return self.forward(bilm.character_ids(sentences))

    def save(self, folder: Union[str, PathLike[str]]) -> None:
        """Write the biLM as it is now, without the mixes, as options.json and weights.hdf5."""
        if not isinstance(self._elmo_lstm, ElmoBiLm):
            raise ValueError("save needs Elmo's own biLM, not another module")
        self._elmo_lstm.save(folder)

    def _mix(self, output: BiLmOutput) -> dict[str, Any]:
        """Mix packed layers, which avoids the padding."""
        mixes = self._mixes
        # A layer norm, another mix or a hook needs all tokens of the batch at once.
        if not all(is_plain(mix, ScalarMix) and not mix.do_layer_norm for mix in mixes):
            return self._mix_padded(padded_layers(output))
        strip = 0 if self._keep_sentence_boundaries else 1
        representations = []
        for mix in mixes:
            mixed = [mix(layers) for layers in output.layers.values()]  # (n_tokens, projection_dim)
            representations.append(self._dropout(output.packing.unpack(mixed, strip)))
        return {"elmo_representations": representations, "mask": output.packing.mask(strip)}

    def _mix_padded(self, output: dict[str, Any]) -> dict[str, Any]:
        """Mix padded layers, as AllenNLP's `Elmo` does."""
        layers, mask = output["activations"], output["mask"]
        representations = [mix(layers, mask) for mix in self._mixes]
        if not self._keep_sentence_boundaries:
            steps = torch.arange(mask.size(1) - 2, device=mask.device)
            mask = steps < (mask.sum(1, keepdim=True) - 2)  # (batch_size, timesteps)
            is_padding = ~mask.unsqueeze(-1)
            representations = [x[:, 1:-1].masked_fill(is_padding, 0.0) for x in representations]
        return {"elmo_representations": [*map(self._dropout, representations)], "mask": mask}


def batch_to_ids(batch: Iterable[Sequence[str]]) -> torch.Tensor:
    """
    Return the character ids of tokenised sentences, as `Elmo` reads them: shape `(len(batch),
    longest sentence, 50)`, zero where there is no token.
    """
    return torch.as_tensor(sentences_to_character_ids(check_sentences(batch)))
