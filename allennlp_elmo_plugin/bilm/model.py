from typing import Dict, List, NamedTuple, Optional, Sequence, Union

import torch

from allennlp_elmo_plugin.bilm.bilstm import BiLstm
from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.character_encoder import CharacterEncoder
from allennlp_elmo_plugin.bilm.kernels.linear import Linear
from allennlp_elmo_plugin.bilm.kernels.matrix_product import PRECISIONS
from allennlp_elmo_plugin.bilm.kernels.model_call import model_call
from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch
from allennlp_elmo_plugin.bilm.token_embedding import TokenEmbedding

Lengths = Union[Sequence[int], torch.Tensor]


class BiLmOutput(NamedTuple):
    """
    What a biLM makes of a batch: for each direction (`"forward"`, `"backward"`) the token vectors
    and the output of every LSTM layer, each `(n_tokens, projection_dim)` and packed in the
    direction's order, and for each direction the `PackedBatch` that says which is which.
    """

    layers: Dict[str, List[torch.Tensor]]
    packings: Dict[str, PackedBatch]

    @property
    def packing(self) -> PackedBatch:
        """
        The one index of both directions, where both read the same sentences.
        """
        return self.packings["forward"]

    @property
    def n_layers(self) -> int:
        return len(self.layers["forward"])

    def unpack(self, layer: int, strip: int = 0) -> torch.Tensor:
        """
        # Parameters

        layer : `int`
            0 for the token vectors, then the LSTM layers.
        strip : `int`, optional (default = `0`)
            Tokens to leave out at either end of every sentence: 1 for its boundaries.

        # Returns

        `torch.Tensor`
            Shape `(batch_size, timesteps - 2 * strip, n_directions * projection_dim)`, in the order
            of the text, zero where there is no token.
        """
        return self.packing.unpack([each[layer] for each in self.layers.values()], strip)


class BiLm(torch.nn.Module):
    """
    The bidirectional language model of ELMo (Peters et al. 2018), as bilm-tf trains it: a character
    encoder or a token embedding, and LSTM layers in both directions. The same module is trained,
    fine-tuned and used for embedding; the softmax, which training alone needs, is a `Softmax`.

    ```python
    bilm = BiLm(BiLmOptions.from_file("options.json"))
    read_weights("weights.hdf5", bilm)
    output = bilm(character_ids)         # with the sentence boundaries in place
    top = output.unpack(2)               # (batch_size, timesteps, 2 * projection_dim)
    ```

    Submodules and parameters have the names and shapes of AllenNLP's `_ElmoBiLm`.

    # Parameters

    options : `BiLmOptions`
        What the model is made of.
    forget_bias : `float`, optional (default = `1.0`)
        Added to the forget gates at every use, as in bilm-tf; 0.0 if the parameters have it in
        them, as AllenNLP's have.
    token_layer : `CharacterEncoder`, optional (default = a new one)
        In place of the one that the options describe.
    device : `str`, optional (default = torch's default device)
        Where the parameters are. On `"meta"` they have no memory and no values yet, and no random
        numbers are drawn: `load` of `saved_variables` gives them both.
    """

    def __init__(
        self,
        options: BiLmOptions,
        forget_bias: float = 1.0,
        token_layer: Optional[CharacterEncoder] = None,
        device: Optional[str] = None,
    ) -> None:
        super().__init__()
        self.options = options
        self.forget_bias = forget_bias
        self._token_embedder: Union[CharacterEncoder, TokenEmbedding]
        if token_layer is not None:
            self._token_embedder = token_layer
        elif options.char_cnn is not None:
            self._token_embedder = CharacterEncoder(
                options.char_cnn, options.projection_dim, options.project_characters, device
            )
        else:
            if options.n_tokens_vocab is None:
                raise ValueError(
                    'a biLM needs "char_cnn", or for a token embedding "n_tokens_vocab", in its '
                    "options"
                )
            self._token_embedder = TokenEmbedding(
                options.n_tokens_vocab, options.projection_dim, device
            )
        self._elmo_lstm = BiLstm(options, forget_bias, device)
        # See `set_precision`.
        self.precision = "float32"
        # Layers of a representation, the token vectors among them.
        self.num_layers = options.n_layers + 1

    @property
    def token_layer(self) -> Union[CharacterEncoder, TokenEmbedding]:
        return self._token_embedder

    @property
    def lstm(self) -> BiLstm:
        return self._elmo_lstm

    def get_output_dim(self) -> int:
        return len(self.options.directions) * self.options.projection_dim

    @model_call
    def forward(
        self,
        tokens: torch.Tensor,
        lengths: Optional[Lengths] = None,
        tokens_reverse: Optional[torch.Tensor] = None,
        lengths_reverse: Optional[Lengths] = None,
        carried: Optional[CarriedState] = None,
    ) -> BiLmOutput:
        """
        # Parameters

        tokens : `torch.Tensor`
            Character ids, shape `(batch_size, timesteps, max_characters_per_token)`, or for a token
            embedding vocabulary ids, shape `(batch_size, timesteps)`. Sentence boundaries are
            tokens like others.
        lengths : `Sequence[int]` or `torch.Tensor`, optional (default = all of `timesteps`)
            Tokens in each row, shape `(batch_size,)`; the rest is padding. From a tensor on a GPU
            they have to be copied.
        tokens_reverse, lengths_reverse : `torch.Tensor`, optional (default = `None`)
            What the backward direction reads, in the order in which it reads it: training gives
            each direction a stream of its own. Without it, the backward direction reads `tokens`
            from the end.
        carried : `CarriedState`, optional (default = `None`)
            The LSTM states to start from and to update; see `BiLstm.forward`.
        """
        packing = _packing(tokens, lengths)
        packed = packing.pack(tokens)  # (n_tokens, ...)
        if tokens_reverse is None or not self.options.bidirectional:
            return self.run_tokens(self.embed_tokens(packed), packing, carried)
        packings = {"forward": packing, "backward": _packing(tokens_reverse, lengths_reverse)}
        # One call, so that a word that both directions read is computed once.
        vectors = self.embed_tokens(torch.cat([packed, packings["backward"].pack(tokens_reverse)]))
        split = vectors.split([each.n_tokens for each in packings.values()])
        return self.run_layers(dict(zip(packings, split)), packings, carried)

    @model_call
    def forward_words(
        self, sentences: Sequence[Sequence[str]], carried: Optional[CarriedState] = None
    ) -> BiLmOutput:
        """
        `forward` for words as they are written, of a model that reads characters. No character ids
        are made for words whose vectors are kept (`CharacterEncoder.max_cached_words`).

        # Parameters

        sentences : `Sequence[Sequence[str]]`
            Words; sentence boundaries are words like others.
        """
        assert isinstance(self.token_layer, CharacterEncoder)
        lengths = [len(sentence) for sentence in sentences]
        device = self.token_layer.weights[0].device
        packing = PackedBatch(lengths, max(lengths, default=0), device)
        # Longest sentence first, as in `packing`.
        ordered = sorted(sentences, key=len, reverse=True)
        words = [
            sentence[step]
            for step, size in enumerate(packing.batch_sizes)
            for sentence in ordered[:size]
        ]
        return self.run_tokens(self.token_layer.embed_words(words), packing, carried)

    def embed_tokens(self, tokens: torch.Tensor) -> torch.Tensor:
        """
        Return the vectors of tokens, shape `(n_tokens, projection_dim)`, without context.

        # Parameters

        tokens : `torch.Tensor`
            Any tokens in any order, of the shape that the token layer takes.
        """
        return self.token_layer(tokens)

    @model_call
    def run_tokens(
        self,
        vectors: torch.Tensor,
        packing: PackedBatch,
        carried: Optional[CarriedState] = None,
    ) -> BiLmOutput:
        """
        `forward` from token vectors on, where both directions read the same text.

        # Parameters

        vectors : `torch.Tensor`
            Shape `(n_tokens, projection_dim)`, packed for the forward direction.
        packing : `PackedBatch`
            The index of the batch.
        """
        packed = {"forward": vectors}
        if self.options.bidirectional:
            packed["backward"] = vectors.index_select(0, packing.reversal)
        return self.run_layers(packed, dict.fromkeys(packed, packing), carried)

    def set_precision(self, precision: str) -> None:
        """
        # Parameters

        precision : `str`
            The numbers that matrix products are computed with: "float32"; "bfloat16", also where a
            gradient is needed; or "int8", for inference of few sentences at a time. Parameters and
            the state of the LSTMs are float32 whatever the precision.
        """
        if precision not in PRECISIONS:
            raise ValueError(f"precision is {precision!r}; it must be one of {PRECISIONS}")
        self.precision = precision
        for module in self.modules():
            if isinstance(module, (CharacterEncoder, Linear, ProjectedLstm)):
                module.precision = precision

    def run_layers(
        self,
        vectors: Dict[str, torch.Tensor],
        packings: Dict[str, PackedBatch],
        carried: Optional[CarriedState] = None,
    ) -> BiLmOutput:
        """
        `forward` from token vectors on.

        # Parameters

        vectors : `Dict[str, torch.Tensor]`
            For each direction shape `(n_tokens, projection_dim)`, packed in its order.
        packings : `Dict[str, PackedBatch]`
            For each direction.
        """
        outputs = self._elmo_lstm(vectors, packings, carried)
        return BiLmOutput({key: [vectors[key], *outputs[key]] for key in vectors}, packings)


def _packing(tokens: torch.Tensor, lengths: Optional[Lengths]) -> PackedBatch:
    batch_size, timesteps = tokens.shape[:2]
    counts = lengths.tolist() if isinstance(lengths, torch.Tensor) else lengths
    if counts is None:
        counts = [timesteps] * batch_size
    return PackedBatch(counts, timesteps, tokens.device)
