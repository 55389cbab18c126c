"""The bidirectional language model of ELMo as one torch module."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from allennlp_elmo_plugin.bilm.bilstm import BiLstm
from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.character_encoder import CharacterEncoder
from allennlp_elmo_plugin.bilm.kernels.matrix_product import PRECISIONS
from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm, glorot_uniform_
from allennlp_elmo_plugin.bilm.model_call import is_plain, model_call
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch

Lengths = Sequence[int] | torch.Tensor | None


class BiLmOutput(NamedTuple):
    """Each direction's token vectors and LSTM layers, `(n_tokens, projection_dim)` each."""

    layers: dict[str, list[torch.Tensor]]
    packings: dict[str, PackedBatch]

    @property
    def packing(self) -> PackedBatch:
        return self.packings["forward"]

    @property
    def n_layers(self) -> int:
        return len(self.layers["forward"])

    def unpack(self, layer: int, strip: int = 0) -> torch.Tensor:
        """Return a layer (0 for the token vectors) as `PackedBatch.unpack` does."""
        return self.packing.unpack([layers[layer] for layers in self.layers.values()], strip)


class TokenEmbedding(torch.nn.Module):
    """
    bilm-tf's token layer for options without `char_cnn`. `DistributedDataParallel` expects a sparse
    gradient from a `torch.nn.Embedding`, even where a shared softmax makes it dense.
    """

    def __init__(self, n_tokens_vocab: int, output_dim: int, device: str | None = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(n_tokens_vocab, output_dim, device=device))
        if device != "meta":
            glorot_uniform_(self.weight, n_tokens_vocab, output_dim)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        # (n_tokens,) to (n_tokens, output_dim)
        return torch.nn.functional.embedding(token_ids, self.weight, sparse=True)


class BiLm(torch.nn.Module):
    """
    The bidirectional language model of ELMo (Peters et al. 2018) as bilm-tf trains it: a character
    encoder or a token embedding, and LSTM layers in both directions. The same module is trained,
    fine-tuned and used for embedding; only training needs a `Softmax`.

    ```python
    bilm = BiLm(BiLmOptions.from_file("options.json"))
    read_weights("weights.hdf5", bilm)
    output = bilm(character_ids)         # with the sentence boundaries in place
    top = output.unpack(2)               # (batch_size, timesteps, 2 * projection_dim)
    ```

    `forward` takes ids and `run_words` words; `run` starts from their vectors. Submodules and
    parameters have the names of AllenNLP's `_ElmoBiLm`.

    # Parameters

    forget_bias : `float`, optional (default = `1.0`)
        Added to the forget gates at every use, as in bilm-tf; 0.0 if the parameters include it, as
        AllenNLP's do.
    device : `str`, optional (default = torch's default device)
        With `"meta"`, the parameters get their memory when weights are loaded.
    """

    def __init__(
        self,
        options: BiLmOptions,
        forget_bias: float = 1.0,
        token_layer: CharacterEncoder | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__()
        dim = options.projection_dim
        self.options = options
        self.forget_bias = forget_bias
        self._token_embedder: CharacterEncoder | TokenEmbedding
        if token_layer is not None:
            self._token_embedder = token_layer
        elif options.char_cnn is not None:
            project = options.project_characters
            self._token_embedder = CharacterEncoder(options.char_cnn, dim, project, device)
        elif options.n_tokens_vocab is not None:
            self._token_embedder = TokenEmbedding(options.n_tokens_vocab, dim, device)
        else:
            raise ValueError(
                'the options of a biLM need "char_cnn", or "n_tokens_vocab" for a token embedding'
            )
        self._elmo_lstm = BiLstm(options, forget_bias, device)
        self.precision = "float32"
        self.num_layers = options.n_layers + 1  # with the token vectors

    @property
    def token_layer(self) -> CharacterEncoder | TokenEmbedding:
        return self._token_embedder

    @property
    def lstm(self) -> BiLstm:
        return self._elmo_lstm

    def get_output_dim(self) -> int:
        return len(self.options.directions) * self.options.projection_dim

    def set_precision(self, precision: str) -> None:
        """
        Set the precision of matrix products: "float32", "bfloat16", or "int8" for inference of a
        few sentences at a time. Parameters and cells are always float32.
        """
        if precision not in PRECISIONS:
            raise ValueError(f"precision is {precision!r}; it must be one of {PRECISIONS}")
        self.precision = precision
        for module in self.modules():
            if isinstance(module, (CharacterEncoder, ProjectedLstm)):
                module.precision = precision

    @model_call
    def forward(
        self,
        tokens: torch.Tensor,
        lengths: Lengths = None,
        tokens_reverse: torch.Tensor | None = None,
        lengths_reverse: Lengths = None,
        carried: CarriedState | None = None,
        character_ids: torch.Tensor | None = None,
    ) -> BiLmOutput:
        """
        Run the model over character ids, shape `(batch_size, timesteps, max_characters_per_token)`,
        or vocabulary ids for a token embedding, shape `(batch_size, timesteps)`. `lengths` are the
        numbers of tokens in the rows, by default `timesteps`; the rest is padding. See `run` for
        the other parameters.

        With `character_ids` of distinct words, shape `(n_words, max_characters_per_token)`, the
        tokens are places in it. Otherwise equal words are looked for on the CPU.
        """
        packing = _packing(tokens, lengths)
        packed = packing.pack(tokens)  # (n_tokens, ...)
        packing_reverse = None
        if tokens_reverse is not None and self.options.bidirectional:
            packing_reverse = _packing(tokens_reverse, lengths_reverse, packing)
            # One call, so that words that both directions read are computed once
            packed = torch.cat([packed, packing_reverse.pack(tokens_reverse)])
        encoder = self._token_embedder
        if character_ids is None:
            vectors = encoder(packed)
        elif is_plain(encoder, CharacterEncoder):
            vectors = encoder.encode(character_ids).index_select(0, packed)  # type: ignore[operator]
        else:
            vectors = encoder(character_ids.index_select(0, packed))
        if packing_reverse is None:
            return self.run(vectors, packing, carried)
        vectors, reverse = vectors.split([packing.n_tokens, packing_reverse.n_tokens])
        return self.run(vectors, packing, carried, (reverse, packing_reverse))

    @model_call
    def run_words(
        self,
        sentences: Sequence[Sequence[str]],
        sentences_reverse: Sequence[Sequence[str]] | None = None,
        carried: CarriedState | None = None,
    ) -> BiLmOutput:
        """Do what `forward` does over words, in a model with a character encoder."""
        reverse = None if sentences_reverse is None else self._embed_words(sentences_reverse)
        return self.run(*self._embed_words(sentences), carried, reverse)

    def _embed_words(self, sentences: Sequence[Sequence[str]]) -> tuple[torch.Tensor, PackedBatch]:
        encoder = self._token_embedder
        assert isinstance(encoder, CharacterEncoder)
        lengths = list(map(len, sentences))
        packing = PackedBatch(lengths, max(lengths, default=0), encoder.weights[0].device)
        # Longest sentence first, as in `packing`
        ordered = sorted(sentences, key=len, reverse=True)
        words = [
            sentence[step]
            for step, size in enumerate(packing.batch_sizes)
            for sentence in ordered[:size]
        ]
        return encoder.embed_words(words), packing

    @model_call
    def run(
        self,
        vectors: torch.Tensor,
        packing: PackedBatch,
        carried: CarriedState | None = None,
        reverse: tuple[torch.Tensor, PackedBatch] | None = None,
    ) -> BiLmOutput:
        """
        Run the LSTM layers over packed vectors of tokens, shape `(n_tokens, projection_dim)`. They
        start from `carried`, by default `BiLstm.start()`, and update it. `reverse` is what the
        backward direction reads, in its own order: training has a text for each direction.
        """
        inputs, packings = {"forward": vectors}, {"forward": packing}
        if self.options.bidirectional:
            own = reverse or (vectors.index_select(0, packing.reversal), packing)
            inputs["backward"], packings["backward"] = own
        if is_plain(self._elmo_lstm, BiLstm):
            outputs = self._elmo_lstm.run(inputs, packings, carried)
        elif reverse is None:
            outputs = self._run_padded(vectors, packing, carried)
        else:
            raise ValueError(
                "the LSTM was replaced or has a hook, which can't read another text backwards"
            )
        return BiLmOutput({key: [inputs[key], *outputs[key]] for key in inputs}, packings)

    def settle(self, vectors: torch.Tensor) -> CarriedState:
        """
        Return the state after reading tokens, shape `(n_tokens, projection_dim)`, from zero, until
        ten repetitions change no number by more than 1e-6, at most 100 times.
        """
        vectors = vectors.detach().repeat(10, 1)
        packing = PackedBatch([len(vectors)], len(vectors), vectors.device)
        state, before = CarriedState(), vectors.new_full((), math.inf)
        for _ in range(10):
            self.run(vectors, packing, state)
            assert state.states is not None
            values = torch.cat([each.flatten() for each in state.states])
            if (values - before).abs().max() <= 1e-6:
                break
            before = values
        return state

    @property
    def _has_own_lstm(self) -> bool:
        return type(self._elmo_lstm) is BiLstm and "forward" not in vars(self._elmo_lstm)

    def _run_padded(
        self, vectors: torch.Tensor, packing: PackedBatch, carried: CarriedState | None
    ) -> dict[str, list[torch.Tensor]]:
        """Call an LSTM that has a hook, or a module with AllenNLP's interface in its place."""
        start = [carried] if self._has_own_lstm else []
        # (n_layers, batch_size, timesteps, n_directions * projection_dim)
        padded = self._elmo_lstm(packing.unpack([vectors]), packing.mask(), *start)
        directions, outputs = self.options.directions, {}
        for direction, layers in zip(directions, padded.chunk(len(directions), -1)):
            order = packing.reversal if direction == "backward" else slice(None)
            outputs[direction] = [packing.pack(layer)[order] for layer in layers]
        return outputs


def _packing(
    tokens: torch.Tensor, lengths: Lengths, same: PackedBatch | None = None
) -> PackedBatch:
    """Return how rows are packed: `same` if its rows have the same lengths."""
    batch_size, timesteps = tokens.shape[:2]
    if lengths is None:
        lengths = [timesteps] * batch_size
    elif isinstance(lengths, torch.Tensor):
        lengths = lengths.tolist()
    if same is not None and (same.timesteps, same.lengths_on_host) == (timesteps, list(lengths)):
        return same
    return PackedBatch(lengths, timesteps, tokens.device)
