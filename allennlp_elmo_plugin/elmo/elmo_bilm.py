"""AllenNLP's `_ElmoBiLm`: the language model of `Elmo`, read from the published files."""

import hashlib
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import torch

from allennlp_elmo_plugin.bilm.cached_value import CachedValue, CachingModule
from allennlp_elmo_plugin.bilm.carried_state import CarriedState, FixedState, InitialState
from allennlp_elmo_plugin.bilm.characters import CharacterTable, sentences_to_character_ids
from allennlp_elmo_plugin.bilm.kernels.matrix_product import Precision
from allennlp_elmo_plugin.bilm.model import BiLm, BiLmOutput
from allennlp_elmo_plugin.bilm.model_call import is_plain, model_call
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch
from allennlp_elmo_plugin.elmo.elmo_character_encoder import (
    ElmoCharacterEncoder,
    add_boundaries,
    check_gaps,
    gaps,
)
from allennlp_elmo_plugin.elmo.many_langs_encoder import ManyLangsEncoder
from allennlp_elmo_plugin.elmo.word_encoder import WordEncoder
from allennlp_elmo_plugin.files.atomic import PathLike, output_folder
from allennlp_elmo_plugin.pretrained.checkpoints.many_langs import ManyLangsOptions
from allennlp_elmo_plugin.pretrained.checkpoints.saved_variables import load
from allennlp_elmo_plugin.pretrained.file_names import OPTIONS_FILE, VOCABULARY_FILE, WEIGHT_FILE
from allennlp_elmo_plugin.pretrained.find_model import find_model
from allennlp_elmo_plugin.pretrained.weight_file import write_weights
from allennlp_elmo_plugin.text.vocabulary import write_vocabulary_file

logger = logging.getLogger(__name__)

PaddedLayers = dict[str, torch.Tensor | list[torch.Tensor]]

MAX_CACHED_WORDS = 50_000
INITIAL_STATES: tuple[str, ...] = get_args(InitialState)

# By the options that a layout reads
_ENCODERS: dict[type[BiLmOptions], type[ElmoCharacterEncoder]] = {
    BiLmOptions: ElmoCharacterEncoder,
    ManyLangsOptions: ManyLangsEncoder,
}


class ElmoBiLm(CachingModule, BiLm):
    """
    AllenNLP's `_ElmoBiLm` over our language model, with AllenNLP's arguments and results; see
    `Elmo` for the parameters. `run_ids` and `run_sentences` return packed layers.
    """

    def __init__(
        self,
        options_file: PathLike | None,
        weight_file: PathLike | None,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
        initial_state: InitialState = "carried",
        precision: Precision = "float32",
        max_cached_words: int = MAX_CACHED_WORDS,
    ) -> None:
        if initial_state not in INITIAL_STATES:
            raise ValueError(f"initial_state is {initial_state!r}; use one of {INITIAL_STATES}")
        if precision == "int8" and requires_grad:
            raise ValueError("the precision int8 has no gradient: set requires_grad to false")
        with find_model(options_file, weight_file) as files, files.open() as (options, weights):
            kind = _ENCODERS[type(options)] if options.char_cnn else WordEncoder
            encoder = kind(None, None, requires_grad, (options, files))
            # The forget biases include the 1.0, as in AllenNLP's state dicts.
            super().__init__(replace(options, dropout=0.0), 0.0, encoder, "meta")
            self.layout = files.layout
            load(self, self.layout.datasets(self), weights)
        self.set_precision(precision)
        encoder.max_cached_words = max_cached_words
        # For a warning about words that are cut, as those whose code points are read are not
        width = encoder.options.max_characters_per_token
        self.max_characters = width if encoder.reads_bytes else sys.maxsize
        self.initial_state: InitialState = initial_state
        self._elmo_lstm.stateful = initial_state == "carried"
        self._settled: CachedValue[FixedState] = CachedValue()
        self._digest: CachedValue[str] = CachedValue()
        self._requires_grad = requires_grad
        self.requires_grad_(requires_grad)
        self._word_embedding: torch.nn.Embedding | None = None
        self._bos_embedding = self._eos_embedding = torch.empty(0)
        if vocab_to_cache:
            if requires_grad:
                logger.warning("vocab_to_cache keeps its vectors while the encoder is trained.")
            self.create_cached_cnn_embeddings(vocab_to_cache)

    @property
    def token_layer(self) -> Any:
        return self._token_embedder

    def create_cached_cnn_embeddings(self, tokens: Sequence[str]) -> None:
        """Compute the vectors of `tokens` once, for `word_inputs`. Index 0 is padding."""
        words = [*self.token_layer.boundary_words, *tokens]
        with torch.no_grad():
            vectors = self.token_layer.embed_words(words)  # (len(tokens) + 2, projection_dim)
        self._bos_embedding, self._eos_embedding = vectors[0], vectors[1]
        vectors = vectors[2:].clone()  # (len(tokens), projection_dim)
        vectors[0] = 0.0
        self._word_embedding = torch.nn.Embedding.from_pretrained(
            vectors, freeze=not self._requires_grad, padding_idx=0
        )
        # In AllenNLP's order, in which optimizers number the parameters.
        self._elmo_lstm = self._modules.pop("_elmo_lstm")  # type: ignore[assignment]

    def character_ids(self, sentences: Sequence[Sequence[str]]) -> torch.Tensor:
        """Return what `forward` reads for these words."""
        table = CharacterTable(self.token_layer.options.max_characters_per_token)
        ids = sentences_to_character_ids(sentences, table)
        return torch.from_numpy(ids).to(next(self.parameters()).device)

    def forward(  # type: ignore[override]
        self, inputs: torch.Tensor, word_inputs: torch.Tensor | None = None
    ) -> PaddedLayers:
        """
        Run the layers over character ids, shape `(batch_size, timesteps, 50)`. If all words are
        cached, run them over their indices `word_inputs`, shape `(batch_size, timesteps)`.
        """
        return padded_layers(self.run_ids(inputs, word_inputs))

    @model_call
    def run_ids(self, inputs: torch.Tensor, word_inputs: torch.Tensor | None = None) -> BiLmOutput:
        """Do what `forward` does, but return the layers packed."""
        embedded = self._cached_vectors(word_inputs) or self._token_embedder(inputs)
        return self.run(*_pack(embedded["token_embedding"], embedded["mask"]), self.start())

    @model_call
    def run_sentences(self, sentences: Sequence[Sequence[str]]) -> BiLmOutput:
        """Run the layers over words, and return them packed."""
        begin, end = self.token_layer.boundary_words
        bounded = [[begin, *words, end] for words in sentences]
        return self.run_words(bounded, carried=self.start())

    def _cached_vectors(self, word_inputs: torch.Tensor | None) -> dict[str, torch.Tensor] | None:
        """Return what the character encoder does, if all words are in `vocab_to_cache`."""
        if self._word_embedding is None or word_inputs is None:
            return None
        n_cached = self._word_embedding.num_embeddings
        is_cached, is_word = (word_inputs >= 0) & (word_inputs < n_cached), word_inputs > 0
        all_cached, *has_gap = torch.hstack([is_cached.all(), gaps(is_word)]).tolist()
        if not all_cached:
            return None
        check_gaps(has_gap)
        vectors = self._word_embedding(word_inputs)  # (batch_size, timesteps, dim)
        boundaries = self._bos_embedding.to(vectors), self._eos_embedding.to(vectors)
        vectors, mask = add_boundaries(vectors, is_word.sum(1), *boundaries)
        return {"token_embedding": vectors, "mask": mask}

    def _has_plain_encoder(self) -> bool:
        return is_plain(self._token_embedder, *_ENCODERS.values(), WordEncoder)

    def _embed_words(self, sentences: Sequence[Sequence[str]]) -> tuple[torch.Tensor, PackedBatch]:
        if self._has_plain_encoder():
            return super()._embed_words(sentences)
        embedded = self._token_embedder(self.character_ids(sentences))
        # The encoder adds boundaries to those that are in the sentences already.
        return _pack(embedded["token_embedding"][:, 1:], embedded["mask"][:, 2:])

    def start(self) -> CarriedState:
        """Return the state from which sentences start, by `initial_state`."""
        if not self._has_own_lstm:
            return FixedState()  # not used
        return self.settled_state() if self.initial_state == "settled" else self.lstm.start()

    @model_call
    def settled_state(self) -> FixedState:
        """
        Return the state of each direction after reading the sentence without a word, `<S> </S>`,
        again and again; see `settle`.
        """
        if not self._has_plain_encoder():
            return self._settle()
        weights = [*self.token_layer.weights, *self.lstm.weights]
        return self._settled.get(weights, self._settle, self.precision)

    def _settle(self) -> FixedState:
        # With a gradient, so that in training nothing is prepared for two words. It isn't used, and
        # gradient checkpointing, which finds this state kept the second time, must not count it.
        not_counted = torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)
        with torch.inference_mode(False), torch.enable_grad(), not_counted:
            vectors, _ = self._embed_words([self.token_layer.boundary_words])
        return FixedState(self.settle(vectors))

    def save(self, folder: PathLike) -> None:
        """Write the model's files to a folder, which is then a name of it."""
        if self.layout.read_only:
            raise ValueError(f"{folder}: this model can't be written: {self.layout.read_only}")
        words = getattr(self.token_layer, "words", None)  # of one that reads whole words
        outputs = OPTIONS_FILE, WEIGHT_FILE, *([VOCABULARY_FILE] if words else [])
        with output_folder(folder, outputs, force=True) as new:
            if words:
                write_vocabulary_file(new / VOCABULARY_FILE, words)
            self.options.write(new / OPTIONS_FILE)
            write_weights(new / WEIGHT_FILE, self)

    def fingerprint(self) -> dict[str, str]:
        """Return what the layers depend on: a digest of the model, and the settings."""
        text = json.dumps(self.options.architecture)
        digest = self._digest.get([*self.parameters()], lambda: self._compute_digest(text), text)
        return {"model": digest, "initial_state": self.initial_state, "precision": self.precision}

    def _compute_digest(self, text: str) -> str:
        digest = hashlib.sha256(text.encode())
        for module in (self.token_layer, self.lstm):
            for name, parameter in sorted(module.named_parameters()):
                digest.update(f"{name} {tuple(parameter.shape)}".encode())
                digest.update(parameter.detach().cpu().flatten().contiguous().numpy())
        return digest.hexdigest()


def _pack(vectors: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, PackedBatch]:
    """
    Remove the padding of vectors, shape `(batch_size, timesteps, projection_dim)`, by a mask, shape
    `(batch_size, timesteps)`. Return shape `(n_tokens, projection_dim)`.
    """
    packing = PackedBatch(mask.sum(1).tolist(), mask.size(1), mask.device)
    return packing.pack(vectors), packing


def padded_layers(output: BiLmOutput) -> PaddedLayers:
    """
    Return what AllenNLP's `_ElmoBiLm` does: `activations`, of each layer shape `(batch_size,
    timesteps + 2, n_directions * projection_dim)`, and `mask`, shape `(batch_size, timesteps + 2)`.
    """
    layers = [output.unpack(layer) for layer in range(output.n_layers)]
    return {"activations": layers, "mask": output.packing.mask()}
