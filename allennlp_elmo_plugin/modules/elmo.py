import copy
import hashlib
import logging
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import torch
from allennlp.common import FromParams
from allennlp.common.checks import ConfigurationError
from allennlp.modules.scalar_mix import ScalarMix
from allennlp.modules.token_embedders import Embedding
from allennlp.nn.util import remove_sentence_boundaries

from allennlp_elmo_plugin.bilm.bilstm import BiLstm
from allennlp_elmo_plugin.bilm.carried_state import CarriedState, FixedState
from allennlp_elmo_plugin.bilm.character_encoder import CharacterEncoder
from allennlp_elmo_plugin.bilm.characters import (
    BEGIN_SENTENCE,
    BEGIN_SENTENCE_WORD,
    BEGIN_WORD,
    END_SENTENCE,
    END_SENTENCE_WORD,
    END_WORD,
    MAX_CHARACTERS_PER_TOKEN,
    N_CHARACTERS,
    PADDING,
    CharacterTable,
    sentences_to_character_ids,
)
from allennlp_elmo_plugin.bilm.checkpoints.published_layout import datasets
from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import load
from allennlp_elmo_plugin.bilm.kernels.model_call import is_plain, model_call, needs_grad
from allennlp_elmo_plugin.bilm.kernels.prepared import Prepared
from allennlp_elmo_plugin.bilm.model import BiLm, BiLmOutput
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch
from allennlp_elmo_plugin.modules.elmo_files import ElmoFiles

logger = logging.getLogger(__name__)

# Words whose vectors are kept from batch to batch, unless told otherwise.
MAX_CACHED_WORDS = 50_000
# Words whose vectors are computed at a time for `vocab_to_cache`.
_CACHE_CHUNK = 4096

INITIAL_STATES = ("carried", "settled", "zero")
"""What a sentence can start from; see `Elmo`."""

# The warm-up for "settled" ends when a pass changes no state by more, or after so many passes.
_SETTLED_TOLERANCE = 1e-6
_SETTLED_PASSES = 100


def batch_to_ids(batch: List[List[str]]) -> torch.Tensor:
    """
    Tokenised sentences as the character ids that `Elmo` takes.

    # Parameters

    batch : `List[List[str]]`
        Sentences, each a list of tokens.

    # Returns

    `torch.Tensor`
        Shape `(len(batch), longest sentence, 50)`, zero where there is no token.

    # Raises

    `ConfigurationError`
        The batch is not a list of lists of words.
    """
    check_sentences(batch)
    return torch.as_tensor(sentences_to_character_ids(batch), dtype=torch.long)


def check_sentences(batch: Any) -> None:
    """
    Raises a `ConfigurationError` unless `batch` has sentences, each with words: a string in the
    place of a sentence would be taken for a list of one-letter words.
    """
    if isinstance(batch, str):
        raise ConfigurationError(
            f"got the text {batch[:40]!r}, but it takes a list of sentences, each a list of words: "
            f"[{batch[:40].split()}]"
        )
    for number, sentence in enumerate(batch):
        if isinstance(sentence, (str, bytes)):
            raise ConfigurationError(
                f"sentence {number} is the string {sentence[:40]!r}, but a sentence is a list of "
                f"words: {sentence[:40].split()}; for a single sentence, pass a list with it alone"
            )
        for word in sentence:
            if not isinstance(word, str):
                raise ConfigurationError(
                    f"sentence {number} has the word {word!r:.40}, a {type(word).__name__}; words "
                    "are strings"
                )


def _add_boundaries(
    tokens: torch.Tensor, lengths: torch.Tensor, begin: torch.Tensor, end: torch.Tensor
) -> torch.Tensor:
    """
    Set `begin` and `end` around every sentence, also around one without a token: AllenNLP runs the
    LSTMs over such rows too.

    # Parameters

    tokens, lengths : `torch.Tensor`
        Shapes `(batch_size, timesteps, dim)` and `(batch_size,)`.
    begin, end : `torch.Tensor`
        Shape `(dim,)`.

    # Returns

    `torch.Tensor`
        Shape `(batch_size, timesteps + 2, dim)`.
    """
    bounded = torch.nn.functional.pad(tokens, (0, 0, 1, 1))  # (batch_size, timesteps + 2, dim)
    bounded[:, 0] = begin
    place = (lengths + 1).view(-1, 1, 1).expand(-1, 1, bounded.size(2))  # (batch_size, 1, dim)
    return bounded.scatter(1, place, end.expand_as(place))


def _boundary_characters(like: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    """
    Return the character ids of `<S>` and `</S>`, shape `(max_characters,)` each, made on the device
    of `like`, whose last dimension is as long.
    """
    boundaries = []
    for character in (BEGIN_SENTENCE, END_SENTENCE):
        ids = like.new_full((like.size(-1),), PADDING + 1)
        for place, value in enumerate((BEGIN_WORD, character, END_WORD)):
            ids[place : place + 1] = value + 1  # of a slice, this fills without a copy
        boundaries.append(ids)
    return boundaries[0], boundaries[1]


def _add_boundary_characters(inputs: torch.Tensor) -> Tuple[torch.Tensor, List[int]]:
    """
    Check character ids and set sentence boundaries around every sentence.

    # Parameters

    inputs : `torch.Tensor`
        Character ids, shape `(batch_size, timesteps, max_characters)`.

    # Returns

    `Tuple[torch.Tensor, List[int]]`
        The sentences, shape `(batch_size, timesteps + 2, max_characters)`, and their lengths,
        boundaries counted.

    # Raises

    `ConfigurationError`
        An id is not one of a character.
    """
    lengths = (inputs > 0).any(-1).sum(-1)  # (batch_size,)
    facts = lengths
    if inputs.numel():
        # All that the host has to know, in one transfer.
        facts = torch.cat([lengths, torch.stack(torch.aminmax(inputs))])  # (batch_size + 2,)
    *counts, low, high = facts.tolist() if inputs.numel() else [*facts.tolist(), 0, 0]
    if low < 0 or high >= N_CHARACTERS:
        raise ConfigurationError(
            f"got character ids from {low} to {high}, but they go from 0 (no word) to "
            f"{N_CHARACTERS - 1}: are these word ids?"
        )
    bounded = _add_boundaries(inputs, lengths, *_boundary_characters(inputs))
    return bounded, [count + 2 for count in counts]


def _check_characters(inputs: torch.Tensor, max_characters: int) -> None:
    """
    Raises a `ConfigurationError` unless `inputs` have the type and shape of character ids for a
    model whose words have `max_characters`.
    """
    if inputs.dim() < 3 or inputs.is_floating_point() or inputs.dtype == torch.bool:
        raise ConfigurationError(
            f"got a tensor of {inputs.dtype} and shape {tuple(inputs.shape)}, but it takes the "
            f"character ids of a batch, whole numbers of shape (batch_size, timesteps, "
            f"{max_characters}), as batch_to_ids and elmo_characters give them"
        )
    width = inputs.size(-1)
    if width < max_characters:
        raise ConfigurationError(
            f"The model reads words of {max_characters} characters (max_characters_per_token), but "
            f"got {width}: AllenNLP's elmo_characters and batch_to_ids always give 50. Make the "
            "ids with `sentences_to_character_ids(sentences, CharacterTable("
            f"{max_characters}))` of allennlp_elmo_plugin.bilm.characters, or use ElmoEmbedder"
        )
    if width not in (max_characters, MAX_CHARACTERS_PER_TOKEN):
        raise ConfigurationError(
            f"got words of {width} characters, but the model reads {max_characters} "
            f"(max_characters_per_token), or the first of {MAX_CHARACTERS_PER_TOKEN}: are these "
            "the ids of another model?"
        )


def _fit_width(inputs: torch.Tensor, max_characters: int) -> torch.Tensor:
    """
    Checks character ids, and cuts words to as many characters as a model has been trained with: the
    ids are those that the words have at that width.

    # Parameters

    inputs : `torch.Tensor`
        Character ids, shape `(batch_size, timesteps, width)`.

    # Returns

    `torch.Tensor`
        Shape `(batch_size, timesteps, max_characters)`.

    # Raises

    `ConfigurationError`
        See `_check_characters`.
    """
    _check_characters(inputs, max_characters)
    if inputs.size(-1) == max_characters:
        return inputs
    cut = inputs[..., :max_characters].clone()
    last = cut[..., -1]  # (batch_size, timesteps)
    last.masked_fill_((last != 0) & (last != PADDING + 1), END_WORD + 1)
    return cut


class Elmo(torch.nn.Module, FromParams):
    """
    ELMo representations of sentences: learned mixes of the layers of a biLM (Peters et al. 2018,
    equation 1). A drop-in for `allennlp.modules.elmo.Elmo` of AllenNLP 2.10.1, with its arguments,
    outputs and parameter names.

    ```python
    elmo = Elmo("options.json", "weights.hdf5", num_output_representations=1, dropout=0.0)
    output = elmo(batch_to_ids([["A", "sentence", "."]]))
    output["elmo_representations"][0]    # (1, 3, 2 * projection_dim)
    ```

    By default the biLM carries its LSTM states from batch to batch, as AllenNLP's does, so that the
    vectors of a sentence depend on what was embedded before; `initial_state` has other ways.
    `elmo._elmo_lstm._elmo_lstm.reset_states()` forgets the carried states once.

    # Parameters

    options_file, weight_file : `str`
        options.json and weights.hdf5 of the biLM: paths, addresses, a folder with both or the short
        name of a published model; see `ElmoFiles.find`.
    num_output_representations : `int`
        How many mixes to learn, each with weights of its own.
    requires_grad : `bool`, optional (default = `False`)
        Whether the biLM itself is trained.
    do_layer_norm : `bool`, optional (default = `False`)
        Whether each layer is normalised before it is mixed.
    dropout : `float`, optional (default = `0.5`)
        Applied to each representation.
    vocab_to_cache : `List[str]`, optional (default = `None`)
        Words whose vectors are computed once, here; `forward` then takes their indices in this list
        as `word_inputs`.
    keep_sentence_boundaries : `bool`, optional (default = `False`)
        Whether the representations of `<S>` and `</S>` are part of the output.
    scalar_mix_parameters : `List[float]`, optional (default = `None`)
        Fixed weights of the layers, before the softmax, in place of learned ones.
    module : `torch.nn.Module`, optional (default = `None`)
        A biLM in place of the two files, which are `None` then. It has `num_layers`,
        `get_output_dim()`, and a `forward` that returns `activations` and `mask`.
    initial_state : `str`, optional (default = `"carried"`)
        What the LSTMs start a sentence from. `"carried"`: what the batch before left in the same
        row, AllenNLP's behaviour. `"zero"`: zeros. `"settled"`: the state in which the model
        settles when it reads nothing but sentence boundaries, `<S> </S>` again and again, found
        once. With the latter two a sentence has the same vectors whatever came before it and
        whatever else is in the batch.
    precision : `str`, optional (default = `"float32"`)
        Of the biLM's matrix products: `"float32"`; `"bfloat16"`, faster on hardware that has it;
        or `"int8"`, faster for a sentence at a time on the CPU, without `requires_grad`. Errors are
        in docs/speed.md.
    max_cached_words : `int`, optional (default = `50000`)
        Words whose vectors are kept from batch to batch, where no gradient is needed: as many
        numbers each as half a representation has. 0 for none.
    """

    def __init__(
        self,
        options_file: Optional[str],
        weight_file: Optional[str],
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Optional[List[str]] = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Optional[List[float]] = None,
        module: Optional[torch.nn.Module] = None,
        initial_state: str = "carried",
        precision: str = "float32",
        max_cached_words: int = MAX_CACHED_WORDS,
    ) -> None:
        super().__init__()
        if module is None:
            if options_file is None:
                raise ConfigurationError("Elmo needs options_file and weight_file, or module")
            module = _ElmoBiLm(
                options_file,
                weight_file,
                requires_grad,
                vocab_to_cache,
                initial_state,
                precision,
                max_cached_words,
            )
        elif options_file is not None or weight_file is not None:
            raise ConfigurationError(
                "Elmo takes either options_file and weight_file, or module; set the files to null"
            )
        elif initial_state != "carried" or precision != "float32":
            raise ConfigurationError(
                f"initial_state is {initial_state!r} and precision {precision!r}, but module has "
                "its own: build the module with them, or leave them out"
            )
        self._elmo_lstm = module
        self._has_cached_vocab = vocab_to_cache is not None
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._do_layer_norm = do_layer_norm
        self._dropout = torch.nn.Dropout(p=dropout)
        # As many as there are representations; each may be replaced under its name.
        self._scalar_mixes: List[ScalarMix] = []
        for k in range(num_output_representations):
            scalar_mix = ScalarMix(
                module.num_layers,  # type: ignore[arg-type]
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,  # type: ignore[arg-type]
                trainable=scalar_mix_parameters is None,
            )
            self.add_module(f"scalar_mix_{k}", scalar_mix)
            self._scalar_mixes.append(scalar_mix)

    def get_output_dim(self) -> int:
        return self._elmo_lstm.get_output_dim()  # type: ignore[operator]

    def forward(
        self, inputs: torch.Tensor, word_inputs: Optional[torch.Tensor] = None
    ) -> Dict[str, Union[torch.Tensor, List[torch.Tensor]]]:
        """
        # Parameters

        inputs : `torch.Tensor`
            Character ids, shape `(batch_size, timesteps, 50)` or `(..., timesteps, 50)`.
        word_inputs : `torch.Tensor`, optional (default = `None`)
            Indices in `vocab_to_cache`, shape `(batch_size, timesteps)` or `(..., timesteps)`.

        # Returns

        `Dict[str, Union[torch.Tensor, List[torch.Tensor]]]`
            `elmo_representations`, a list of `num_output_representations` tensors of shape
            `(batch_size, timesteps, n_directions * projection_dim)`, and `mask`, shape
            `(batch_size, timesteps)`; with the leading dimensions of the input.
        """
        if word_inputs is not None and not self._has_cached_vocab:
            logger.warning("Elmo got word_inputs, but has no vocab_to_cache: they are not used.")
            word_inputs = None
        leading_shape = inputs.shape[:-2]
        if inputs.dim() > 3:
            inputs = inputs.flatten(0, -3)
        if word_inputs is not None:
            leading_shape = word_inputs.shape[:-1]
            if word_inputs.dim() > 2:
                word_inputs = word_inputs.flatten(0, -2)

        # Packed layers unless someone else is to see the padded ones.
        bilm = self._elmo_lstm
        if isinstance(bilm, _ElmoBiLm) and is_plain(bilm, _ElmoBiLm):
            representations, mask = self._mix(bilm.run(inputs, word_inputs))
        else:
            representations, mask = self._mix_padded(bilm(inputs, word_inputs))
        representations = [self._dropout(representation) for representation in representations]
        return {
            "elmo_representations": [
                representation.view(*leading_shape, *representation.shape[1:])
                for representation in representations
            ],
            "mask": mask.view(*leading_shape, mask.size(1)),
        }

    def embed_sentences(
        self, sentences: Sequence[Sequence[str]]
    ) -> Dict[str, Union[torch.Tensor, List[torch.Tensor]]]:
        """
        `forward` for words as they are written: faster than by way of character ids, of which none
        are made for words whose vectors are kept.

        # Parameters

        sentences : `Sequence[Sequence[str]]`
            Tokenised sentences.

        # Returns

        `Dict[str, Union[torch.Tensor, List[torch.Tensor]]]`
            As `forward`.
        """
        bilm = self._elmo_lstm
        if not isinstance(bilm, _ElmoBiLm):
            raise ConfigurationError("embed_sentences needs Elmo's own biLM, not another module")
        check_sentences(sentences)
        if not is_plain(bilm, _ElmoBiLm):
            return self.forward(bilm.character_ids(sentences))
        representations, mask = self._mix(bilm.run_words(sentences))
        return {"elmo_representations": list(map(self._dropout, representations)), "mask": mask}

    @property
    def _current_mixes(self) -> List[torch.nn.Module]:
        return [getattr(self, f"scalar_mix_{k}") for k in range(len(self._scalar_mixes))]

    def _mix(self, output: BiLmOutput) -> Tuple[List[torch.Tensor], torch.Tensor]:
        # AllenNLP's scalar mix treats each vector by itself, unless there is a layer norm; what
        # another module or a hook does with the padded layers is not known.
        is_packed = all(
            is_plain(mix, ScalarMix) and not mix.do_layer_norm for mix in self._current_mixes
        )
        return self._mix_packed(output) if is_packed else self._mix_padded(_padded(output))

    def _mix_packed(self, output: BiLmOutput) -> Tuple[List[torch.Tensor], torch.Tensor]:
        """
        Mixes the layers where there is no padding, and puts only the mixes in place.
        """
        strip = 0 if self._keep_sentence_boundaries else 1
        representations = []
        for scalar_mix in self._current_mixes:
            mixed = [scalar_mix(layers) for layers in output.layers.values()]  # (n_tokens, dim)
            representations.append(output.packing.unpack(mixed, strip))
        return representations, output.packing.mask(strip)

    def _mix_padded(
        self, output: Dict[str, Union[torch.Tensor, List[torch.Tensor]]]
    ) -> Tuple[List[torch.Tensor], torch.Tensor]:
        """
        Mixes padded layers: of a `module` of any kind, or for the layer norm, which is taken over
        all tokens of the batch at once.
        """
        activations: Any = output["activations"]
        mask: Any = output["mask"]
        representations = [scalar_mix(activations, mask) for scalar_mix in self._current_mixes]
        if self._keep_sentence_boundaries:
            return representations, mask
        stripped = [remove_sentence_boundaries(each, mask) for each in representations]
        return [each for each, _ in stripped], remove_sentence_boundaries(activations[0], mask)[1]


def _padded(output: BiLmOutput) -> Dict[str, Union[torch.Tensor, List[torch.Tensor]]]:
    """
    What AllenNLP's `_ElmoBiLm` returns.
    """
    return {
        "activations": [output.unpack(layer) for layer in range(output.n_layers)],
        "mask": output.packing.mask(),
    }


class _ElmoCharacterEncoder(CharacterEncoder):
    """
    AllenNLP's class of this name over our `CharacterEncoder`: character ids of sentences to token
    vectors, sentence boundaries added.

    # Parameters

    options_file, weight_file : `str`
        options.json and weights.hdf5; see `ElmoFiles.find`.
    requires_grad : `bool`, optional (default = `False`)
        Whether the parameters are trained.
    """

    def __init__(
        self, options_file: str, weight_file: Optional[str], requires_grad: bool = False
    ) -> None:
        with ElmoFiles.find(options_file, weight_file).open() as (options, variables):
            encoder_only = replace(options, n_layers=0)
            variables.check(datasets(encoder_only), parts=("char_embed", "CNN"))
            self._make(options, requires_grad)
            modules = torch.nn.ModuleDict({"_token_embedder": self})
            load(modules, datasets(encoder_only), variables)

    @classmethod
    def without_values(cls, options: BiLmOptions, requires_grad: bool) -> "_ElmoCharacterEncoder":
        """
        Return an encoder whose parameters have no memory yet, for a model that loads them.
        """
        encoder = cls.__new__(cls)
        encoder._make(options, requires_grad)
        return encoder

    def _make(self, options: BiLmOptions, requires_grad: bool) -> None:
        if options.char_cnn is None:
            raise ValueError(
                'the options have no "char_cnn": a model that reads vocabulary ids, where Elmo '
                "gives character ids"
            )
        dim, project = options.projection_dim, options.project_characters
        super().__init__(options.char_cnn, dim, project, "meta")
        self.requires_grad = requires_grad
        self.requires_grad_(requires_grad)

    def forward(self, inputs: torch.Tensor) -> Dict[str, torch.Tensor]:  # type: ignore[override]
        """
        # Parameters

        inputs : `torch.Tensor`
            Character ids, shape `(batch_size, timesteps, 50)`.

        # Returns

        `Dict[str, torch.Tensor]`
            `token_embedding`, shape `(batch_size, timesteps + 2, output_dim)`, and `mask`, shape
            `(batch_size, timesteps + 2)`.
        """
        inputs = _fit_width(inputs, self.options.max_characters_per_token)
        bounded, lengths = _add_boundary_characters(inputs)
        batch_size, timesteps = bounded.shape[:2]
        vectors = self.embed_tokens(bounded.flatten(0, 1))  # (batch_size * timesteps, output_dim)
        return {
            "token_embedding": vectors.view(batch_size, timesteps, -1),
            "mask": PackedBatch(lengths, timesteps, inputs.device).mask(),
        }


class _ElmoBiLm(BiLm):
    """
    AllenNLP's class of this name over our `BiLm`: reads the published files, adds the sentence
    boundaries, carries the LSTM states from batch to batch.

    # Parameters

    options_file, weight_file : `str`
        options.json and weights.hdf5; see `ElmoFiles.find`.
    requires_grad : `bool`, optional (default = `False`)
        Whether the parameters are trained.
    vocab_to_cache : `List[str]`, optional (default = `None`)
        See `create_cached_cnn_embeddings`.
    initial_state, precision, max_cached_words : optional
        See `Elmo`.
    """

    def __init__(
        self,
        options_file: str,
        weight_file: Optional[str],
        requires_grad: bool = False,
        vocab_to_cache: Optional[List[str]] = None,
        initial_state: str = "carried",
        precision: str = "float32",
        max_cached_words: int = MAX_CACHED_WORDS,
    ) -> None:
        if initial_state not in INITIAL_STATES:
            raise ConfigurationError(
                f"initial_state is {initial_state!r}; it must be one of {list(INITIAL_STATES)}"
            )
        if precision == "int8" and requires_grad:
            raise ConfigurationError(
                "the precision int8 has no gradient: set requires_grad to false, or precision to "
                "float32 or bfloat16"
            )
        # Dropout is for the language model's own training. Forget biases have the 1.0 in them, as
        # in AllenNLP's state dicts.
        with ElmoFiles.find(options_file, weight_file).open() as (options, variables):
            variables.check(datasets(options))
            encoder = _ElmoCharacterEncoder.without_values(options, requires_grad)
            super().__init__(replace(options, dropout=0.0), 0.0, encoder, "meta")
            load(self, datasets(options, self.forget_bias), variables)
            self.set_precision(precision)
        self._max_characters = encoder.options.max_characters_per_token
        self._token_embedder.max_cached_words = max_cached_words
        self.initial_state = initial_state
        self._elmo_lstm.stateful = initial_state == "carried"
        self._settled: Prepared[FixedState] = Prepared()
        # Where the search for it starts in training.
        self._last_settled: Optional[CarriedState] = None
        self._requires_grad = requires_grad
        self.requires_grad_(requires_grad)
        self._word_embedding: Optional[Embedding] = None
        self._bos_embedding: Optional[torch.Tensor] = None
        self._eos_embedding: Optional[torch.Tensor] = None
        if vocab_to_cache:
            if requires_grad:
                logger.warning(
                    "vocab_to_cache keeps the vectors of its words as they are now, while "
                    "requires_grad goes on training the character encoder."
                )
            self.create_cached_cnn_embeddings(vocab_to_cache)

    def create_cached_cnn_embeddings(self, tokens: List[str]) -> None:
        """
        Computes the vectors of `tokens` once; index i of `word_inputs` then means `tokens[i]`.
        Index 0 is padding.
        """
        device = next(self.parameters()).device
        words = [BEGIN_SENTENCE_WORD, END_SENTENCE_WORD, *tokens]
        table = CharacterTable(self._max_characters)
        chunks = []
        with torch.no_grad():
            for start in range(0, len(words), _CACHE_CHUNK):
                # (n_words, max_characters)
                ids = torch.from_numpy(table.lookup(words[start : start + _CACHE_CHUNK])).long()
                ids = ids.to(device)
                chunks.append(self.token_layer.embed_tokens(ids))  # (n_words, projection_dim)
        vectors = torch.cat(chunks)  # (len(tokens) + 2, projection_dim)
        self._bos_embedding, self._eos_embedding = vectors[0], vectors[1]
        self._word_embedding = Embedding(
            embedding_dim=vectors.size(1),
            num_embeddings=len(tokens),
            weight=vectors[2:].clone(),  # type: ignore[arg-type]
            trainable=self._requires_grad,
            padding_index=0,
        )
        # In AllenNLP's order, in which optimizers number the parameters.
        self._elmo_lstm = self._modules.pop("_elmo_lstm")  # type: ignore[assignment]

    def fingerprint(self) -> Dict[str, str]:
        """
        What the layers of a sentence depend on: a digest of the model, and what it starts from.
        """
        digest = hashlib.sha256(repr(self.options).encode("utf-8"))
        for module in (self.token_layer, self.lstm):
            for name, parameter in sorted(module.named_parameters()):
                digest.update(name.encode("utf-8"))
                digest.update(parameter.detach().cpu().flatten().contiguous().numpy().tobytes())
        return {
            "model": digest.hexdigest(),
            "initial_state": self.initial_state,
            "precision": self.precision,
        }

    @model_call
    def settled_state(self) -> FixedState:
        """
        Return the state for `initial_state` `"settled"`: what is left, in either direction, when
        the sentence without a word, `<S> </S>`, is read again and again from zero until no state
        changes by more than 1e-6, at most 100 times. It is found once, and again when a parameter
        has changed. In training, where that is at each step, the search goes on from the last such
        state in place of zero: it ends after a few times, at the same numbers but for rounding.
        """
        lstm = self.lstm
        if not (self.has_plain_encoder and is_plain(lstm, BiLstm) and lstm.has_plain_parts):
            return self._settle(is_training=False)
        weights = [*self.token_layer.weights, *self.lstm.weights]
        is_training = self.training and needs_grad(*weights)
        if not is_training:
            self._last_settled = None
        key = self.precision, is_training
        return self._settled.get(weights, lambda: self._settle(is_training), key)

    def _settle(self, is_training: bool) -> FixedState:
        if self.has_plain_encoder:
            words = [BEGIN_SENTENCE_WORD, END_SENTENCE_WORD]
            vectors = self.token_layer.embed_words(words)  # type: ignore[operator]
        else:
            empty = self.character_ids([[]])  # (1, 0, max_characters)
            vectors = self._token_embedder(empty)["token_embedding"][0]
        # Shape of vectors: (2, projection_dim)
        packing = PackedBatch([2], 2, vectors.device)
        state = CarriedState()
        previous = None
        if is_training and self._last_settled is not None:
            state = copy.copy(self._last_settled)
        for _ in range(_SETTLED_PASSES):
            self.run_tokens(vectors, packing, state)
            values = state.row(0)
            if previous is not None and (values - previous).abs().max() <= _SETTLED_TOLERANCE:
                break
            previous = values
        if is_training:
            self._last_settled = state
        return FixedState(state)

    def run_layers(
        self,
        vectors: Dict[str, torch.Tensor],
        packings: Dict[str, PackedBatch],
        carried: Optional[CarriedState] = None,
    ) -> BiLmOutput:
        """
        `BiLm.run_layers`, from the settled state if that is the model's `initial_state` and no
        `carried` is given.
        """
        if carried is None and self.initial_state == "settled":
            carried = self.settled_state()
        return super().run_layers(vectors, packings, carried)

    def embed_tokens(self, tokens: torch.Tensor) -> torch.Tensor:
        """
        See `BiLm.embed_tokens`. (Called as a module, the encoder takes sentences.)
        """
        return self.token_layer.embed_tokens(tokens)

    @model_call
    def run(self, inputs: torch.Tensor, word_inputs: Optional[torch.Tensor] = None) -> BiLmOutput:
        """
        `forward` with the layers left packed.
        """
        if self._word_embedding is not None and word_inputs is not None:
            if word_inputs.dim() != 2:
                raise ConfigurationError(
                    f"got word_inputs of shape {tuple(word_inputs.shape)}, but their shape is "
                    "(batch_size, timesteps)"
                )
            # As in AllenNLP, a word that is not in the cache sends the batch to the characters.
            n_cached = self._word_embedding.num_embeddings
            if bool(((word_inputs >= 0) & (word_inputs < n_cached)).all()):
                lengths = (word_inputs > 0).sum(1)  # (batch_size,)
                vectors = self._word_embedding(word_inputs)  # (batch_size, timesteps, dim)
                assert self._bos_embedding is not None and self._eos_embedding is not None
                boundaries = self._bos_embedding.to(vectors), self._eos_embedding.to(vectors)
                vectors = _add_boundaries(vectors, lengths, *boundaries)
                packing = PackedBatch((lengths + 2).tolist(), vectors.size(1), vectors.device)
                return self.run_tokens(packing.pack(vectors), packing)
            if inputs.shape[:-1] != word_inputs.shape:
                raise ConfigurationError(
                    f"got word ids from {int(word_inputs.min())} to {int(word_inputs.max())}, but "
                    f"vocab_to_cache has {n_cached} words; other words are computed from their "
                    f"characters, for which inputs of shape {tuple(inputs.shape)} are not those of "
                    f"word_inputs of shape {tuple(word_inputs.shape)}"
                )
        inputs = _fit_width(inputs, self._max_characters)
        if not self.has_plain_encoder:
            output = self._token_embedder(inputs)
            packing = PackedBatch(output["mask"].sum(1).tolist(), inputs.size(1) + 2, inputs.device)
            return self.run_tokens(packing.pack(output["token_embedding"]), packing)
        return BiLm.forward(self, *_add_boundary_characters(inputs))

    @property
    def has_plain_encoder(self) -> bool:
        """
        Whether the encoder is the one that was made here, without hooks, also on its parts: then
        words may be given to it one by one, and their vectors may be kept.
        """
        encoder: Any = self._token_embedder
        return is_plain(encoder, _ElmoCharacterEncoder) and encoder.has_plain_parts

    def character_ids(self, sentences: Sequence[Sequence[str]]) -> torch.Tensor:
        """
        Return what `forward` takes for words as they are written.
        """
        ids = sentences_to_character_ids(sentences, CharacterTable(self._max_characters))
        return torch.from_numpy(ids).to(next(self.parameters()).device)

    def run_words(self, sentences: Sequence[Sequence[str]]) -> BiLmOutput:
        """
        `run` for words as they are written.
        """
        if not self.has_plain_encoder:
            return self.run(self.character_ids(sentences))
        return self.forward_words(
            [[BEGIN_SENTENCE_WORD, *words, END_SENTENCE_WORD] for words in sentences]
        )

    def forward(  # type: ignore[override]
        self, inputs: torch.Tensor, word_inputs: Optional[torch.Tensor] = None
    ) -> Dict[str, Union[torch.Tensor, List[torch.Tensor]]]:
        """
        # Parameters

        inputs : `torch.Tensor`
            Character ids, shape `(batch_size, timesteps, 50)`.
        word_inputs : `torch.Tensor`, optional (default = `None`)
            Indices of cached words, shape `(batch_size, timesteps)`.

        # Returns

        `Dict[str, Union[torch.Tensor, List[torch.Tensor]]]`
            `activations`, the token vectors (twice, side by side) and each layer's output, shape
            `(batch_size, timesteps + 2, n_directions * projection_dim)` each, and `mask`, shape
            `(batch_size, timesteps + 2)`.
        """
        return _padded(self.run(inputs, word_inputs))
