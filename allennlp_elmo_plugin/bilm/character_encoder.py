"""The character encoder: a word's vector from its characters, without context."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from allennlp_elmo_plugin.bilm.characters import (
    BEGIN_SENTENCE_WORD,
    END_SENTENCE_WORD,
    N_CHARACTERS,
    PADDING,
    CharacterTable,
)
from allennlp_elmo_plugin.bilm.kernels.cached_value import CachedValue, CachingModule, WordCache
from allennlp_elmo_plugin.bilm.kernels.gradients import backward_once
from allennlp_elmo_plugin.bilm.kernels.matrix_product import (
    Linear,
    PreparedMatrix,
    padded_rows,
    product_type,
)
from allennlp_elmo_plugin.bilm.kernels.model_call import check_layers, model_call, needs_grad
from allennlp_elmo_plugin.bilm.kernels.triton_support import runs_triton
from allennlp_elmo_plugin.bilm.options import CharCnnOptions

# Words are grouped by length, rounded up to a multiple of `_LENGTH_STEP` characters. Fewer than
# `_FEW_WORDS` words are one group.
_LENGTH_STEP = 4
_FEW_WORDS = 64
# How many words are encoded at a time, and how many values a convolution has before its maximum
WORDS_AT_ONCE = 4096
_CHUNK = 2**22


class _MaxOverNgrams(torch.autograd.Function):
    """
    `max over p of sum over j of table[j, ids[:, p + j]]`: a convolution over characters and its
    maximum over positions, computed by lookup. From a table, shape `(width, n_characters,
    n_filters)`, and groups of character ids, `(n, timesteps)` each, return `(n_words, n_filters)`.
    """

    @staticmethod
    def forward(ctx: Any, table: torch.Tensor, *groups: torch.Tensor) -> torch.Tensor:
        width, n_characters, n_filters = table.shape
        flat_table = table.reshape(-1, n_filters)  # (width * n_characters, n_filters)
        offsets = torch.arange(width, device=table.device) * n_characters  # (width,)
        chunk = _CHUNK if table.device.type == "cpu" else 16 * _CHUNK
        parts: list[torch.Tensor] = []
        for ids in groups:
            parts += ids.split(max(1, chunk // ((ids.size(1) - width + 1) * n_filters)))
        best, positions = [], []  # (n, n_filters) each
        for ids in parts:
            ngrams = ids.unfold(1, width, 1) + offsets  # (n, n_ngrams, width)
            sums = torch.nn.functional.embedding_bag(
                ngrams.reshape(-1, width), flat_table, mode="sum"
            ).view(*ngrams.shape[:2], n_filters)
            if ctx.needs_input_grad[0]:
                highest, position = _max_and_position(sums)
                positions.append(position)
            else:
                highest = sums.amax(1)
            best.append(highest)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(torch.cat(positions), *parts)
            ctx.shape, ctx.n_groups = table.shape, len(groups)
        return torch.cat(best)

    @backward_once
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        positions, *parts = ctx.saved_tensors
        sizes = [ids.size(0) for ids in parts]
        width = ctx.shape[0]
        grad_table = grad.new_zeros(ctx.shape)
        for ids, position, part_grad in zip(parts, positions.split(sizes), grad.split(sizes)):
            shape = (width, *position.shape)
            # The characters of each filter's best n-gram: (width, n, n_filters)
            ngrams = ids.unfold(1, width, 1).permute(2, 0, 1)  # (width, n, n_ngrams)
            characters = ngrams.gather(2, position.expand(shape))
            grad_table.scatter_add_(1, characters, part_grad.expand(shape))
        return (grad_table, *[None] * ctx.n_groups)


def _max_and_position(sums: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `sums.max(1)`, three times as fast on the CPU, where it overwrites `sums`."""
    if sums.device.type != "cpu":
        return sums.max(1)
    best, n_ngrams = sums.amax(1), sums.size(1)
    # The first position has the highest rank: (n_ngrams, 1)
    ranks = torch.arange(n_ngrams, 0, -1, device="cpu", dtype=sums.dtype).unsqueeze(1)
    losers = sums.sub_(best.unsqueeze(1)).sign_()  # -1, or 0 for the maximum
    highest = torch.add(ranks, losers, alpha=n_ngrams, out=losers).amax(1)  # (n, n_filters)
    # NaN gets any position.
    return best, torch.sub(n_ngrams, highest, out=highest).nan_to_num_().long()


class EncoderWeights(NamedTuple):
    """What inference computes from the parameters, and the vectors of words."""

    tables: list[torch.Tensor]  # (width, n_characters, n_filters) each
    linear: list[tuple[PreparedMatrix, torch.Tensor]]  # (in_dim, out_dim), (out_dim,) each
    words: WordCache


class CharacterEncoder(CachingModule):
    """
    Computes word vectors from characters, as bilm-tf's `char_cnn` does: character embeddings,
    convolutions, the maximum over positions, highway layers and a projection, by default only if
    the number of filters is not `output_dim` (Kim et al. 2016; Jozefowicz et al. 2016).

    Parameters have the names and shapes of AllenNLP's `_ElmoCharacterEncoder`. Its highway gate is
    the share of the input to keep, while bilm-tf's is the share to replace, so bilm-tf's carry
    weights have the opposite sign.
    """

    boundary_words = (BEGIN_SENTENCE_WORD, END_SENTENCE_WORD)
    keeps_tables = True

    def __init__(
        self,
        options: CharCnnOptions,
        output_dim: int,
        project: bool | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__()
        self.options = options
        self.output_dim = output_dim
        dim, n_filters = options.embedding_dim, options.n_filters
        characters = torch.empty(N_CHARACTERS, dim, device=device)
        self._char_embedding_weights = torch.nn.Parameter(characters)
        for i, (width, number) in enumerate(options.filters):
            convolution = torch.nn.Conv1d(dim, number, width, device=device)
            self.add_module(f"char_conv_{i}", convolution)
        sizes = [(n_filters, 2 * n_filters)] * options.n_highway
        highways = (torch.nn.Linear(*size, device=device) for size in sizes)
        self._highways = torch.nn.ModuleDict({"_layers": torch.nn.ModuleList(highways)})
        self._projection = None
        if n_filters != output_dim if project is None else project:
            self._projection = torch.nn.Linear(n_filters, output_dim, device=device)
        # How many words' vectors are kept from batch to batch, where no gradient is needed
        self.max_cached_words = 0
        self.precision = "float32"
        self._table = CharacterTable(options.max_characters_per_token)
        self._prepared: CachedValue[EncoderWeights] = CachedValue()
        if device != "meta":  # whose parameters get their values when weights are loaded
            self.reset_parameters()

    @property
    def convolutions(self) -> list[torch.nn.Conv1d]:
        return [getattr(self, f"char_conv_{i}") for i in range(len(self.options.filters))]

    @property
    def highway_layers(self) -> list[torch.nn.Linear]:
        return list(self._highways["_layers"].children())  # type: ignore[arg-type]

    @property
    def _linear_layers(self) -> list[torch.nn.Linear]:
        projections = [] if self._projection is None else [self._projection]
        return [*self.highway_layers, *projections]

    def get_output_dim(self) -> int:
        return self.output_dim

    def reset_parameters(self) -> None:
        """Initialise as bilm-tf. Row 0 of the embedding, for padding after sentences, is zero."""
        dim, n_filters = self.options.embedding_dim, self.options.n_filters
        torch.nn.init.uniform_(self._char_embedding_weights, -1.0, 1.0)
        with torch.no_grad():
            self._char_embedding_weights[0] = 0.0
        for convolution, (width, _) in zip(self.convolutions, self.options.filters):
            if self.options.activation == "relu":
                torch.nn.init.uniform_(convolution.weight, -0.05, 0.05)
            else:
                torch.nn.init.normal_(convolution.weight, std=math.sqrt(1.0 / (width * dim)))
            torch.nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        for layer in self._linear_layers:
            torch.nn.init.normal_(layer.weight, std=math.sqrt(1.0 / n_filters))
            torch.nn.init.zeros_(layer.bias)
        for layer in self.highway_layers:
            torch.nn.init.constant_(layer.bias[n_filters:], 2.0)  # -2 in bilm-tf's gate

    @property
    def weights(self) -> list[torch.Tensor]:
        """Return the parameters after checking the layers."""
        check_layers(self, torch.nn.Conv1d, torch.nn.ModuleDict, torch.nn.Linear)
        check_layers(self._highways["_layers"], torch.nn.Linear)
        weights: list[Any] = [self._char_embedding_weights]
        for layer in (*self.convolutions, *self._linear_layers):
            weights += [layer.weight, layer.bias]
        return weights

    @model_call
    def forward(
        self, character_ids: torch.Tensor, places: torch.Tensor | None = None
    ) -> torch.Tensor:
        """
        Return the vectors of words by their character ids, shape `(n_words, output_dim)`. With
        `places`, shape `(n_tokens,)`, `character_ids` are those of distinct words, and the vectors
        are those of the words at these places, shape `(n_tokens, output_dim)`.
        """
        if places is not None:
            return self._encode_ids(character_ids, self.prepared_weights()).index_select(0, places)
        # (n_words, max_characters_per_token)
        rows = character_ids.to("cpu", torch.int16).contiguous().numpy()
        return self._embed(rows.view(f"V{rows.shape[1] * rows.itemsize}").ravel().tolist())

    @model_call
    def embed_words(self, words: Sequence[str]) -> torch.Tensor:
        """Return the vectors of words, shape `(len(words), output_dim)`."""
        return self._embed(self._table.spell(words))

    def _embed(self, spellings: list[bytes]) -> torch.Tensor:
        prepared = self.prepared_weights()
        if prepared is not None and self.max_cached_words:
            return prepared.words.look_up(spellings, lambda new: self._encode(new, prepared))
        places = {spelling: i for i, spelling in enumerate(dict.fromkeys(spellings))}
        vectors = self._encode(list(places), prepared)  # of each distinct word once
        index = torch.tensor([places[word] for word in spellings], dtype=torch.long, device="cpu")
        return vectors.index_select(0, index.to(vectors.device))

    def _encode(self, spellings: list[bytes], prepared: EncoderWeights | None) -> torch.Tensor:
        ids = np.frombuffer(bytearray().join(spellings), dtype=np.int16)
        ids = ids.reshape(len(spellings), self.options.max_characters_per_token)
        return self._encode_ids(torch.from_numpy(ids), prepared)

    def _encode_ids(self, ids: torch.Tensor, prepared: EncoderWeights | None) -> torch.Tensor:
        parts = ids.to(self._char_embedding_weights.device).split(WORDS_AT_ONCE)
        return torch.cat([self.encode(part, prepared) for part in parts])

    def keep_words(self, words: Sequence[str]) -> None:
        """Keep the vectors of words for later calls. They count towards `max_cached_words`."""
        with torch.no_grad():
            self.embed_words(words)
            self._cached_words().keep()

    @property
    def n_kept_words(self) -> int:
        return self._cached_words().n_kept

    def forget_words(self, n_kept: int | None = None) -> None:
        """Forget all words except the first `n_kept`, by default those of `keep_words`."""
        words = self._cached_words()
        if n_kept is not None:
            words.n_kept = n_kept
        words.forget()

    @torch.no_grad()
    def _cached_words(self) -> WordCache:
        prepared = self.prepared_weights()
        return WordCache(0) if prepared is None else prepared.words

    def prepared_weights(self) -> EncoderWeights | None:
        """Return what inference computes from the parameters, if it may be kept."""
        # On a GPU, checking whether parameters have changed takes longer than it saves.
        weights = self.weights
        if needs_grad(*weights) or not (self.max_cached_words or weights[0].device.type == "cpu"):
            return None

        def make() -> EncoderWeights:
            linear = []
            for layer in self._linear_layers:
                matrix = PreparedMatrix(layer.weight.t(), self.precision)
                linear.append((matrix, layer.bias.detach().to(matrix.dtype)))
            tables = self._tables(self._char_embedding_weights) if self.keeps_tables else []
            return EncoderWeights(tables, linear, WordCache(self.max_cached_words))

        return self._prepared.get(weights, make, (self.precision, self.max_cached_words))

    def _tables(self, embeddings: torch.Tensor) -> list[torch.Tensor]:
        """
        Return the table of each convolution, shape `(width, n_characters, n_filters)`, from the
        embeddings of characters, shape `(n_characters, dim)`. On a GPU there is a single table, as
        wide as the widest: for Triton's kernel of shape `(n_characters, width, n_filters)`, else
        with one more character for places after the end, which makes the sum of an n-gram minus
        infinity.
        """
        has_kernel = runs_triton(embeddings)
        in_one = has_kernel or embeddings.device.type != "cpu"
        weights = [convolution.weight for convolution in self.convolutions]  # (n, dim, width) each
        if in_one:
            widest = max(weight.size(2) for weight in weights)
            padded = [torch.nn.functional.pad(w, (0, widest - w.size(2))) for w in weights]
            weights = [torch.cat(padded)]
        tables = []
        for weight in weights:
            width = weight.size(2)
            weight = weight.permute(2, 0, 1).flatten(0, 1)  # (width * n_filters, dim)
            no_bias = weight.new_zeros(weight.size(0))
            table = Linear.apply(embeddings, weight, no_bias, weight.dtype)
            table = table.unflatten(1, (width, -1))  # (n_characters, width, n_filters)
            tables.append(table if has_kernel else table.transpose(0, 1))
        if has_kernel:
            return tables
        if in_one:
            widths = np.repeat(*np.array(self.options.filters).T)  # (n_filters,)
            values = np.where(np.arange(widest)[:, None] < widths, -np.inf, 0.0)
            after_end = torch.from_numpy(values).to(
                tables[0], non_blocking=True
            )  # (widest, n_filters)
            return [torch.cat([tables[0], after_end.unsqueeze(1)], 1)]
        return [table.contiguous() for table in tables]

    def encode(
        self,
        character_ids: torch.Tensor,
        prepared: EncoderWeights | None = None,
        tables: list[torch.Tensor] | None = None,
        padding: int = PADDING + 1,
        words: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """
        Do what `forward` does without looking for equal words. `words`, shape `(n_words,
        word_dim)`, which bilm-tf doesn't have, come first in the projection's input.
        """
        n_words = character_ids.size(0)
        if n_words == 0:
            return self._char_embedding_weights.new_zeros(0, self.output_dim)
        if tables is None:
            tables = prepared.tables if prepared else self._tables(self._char_embedding_weights)
        activated, order = self._max_over_ngrams(character_ids, tables, padding)
        vectors = padded_rows(activated)  # (n_rows, n_filters)
        for index in range(self.options.n_highway):
            both = self._linear(index, vectors, prepared)  # (n_rows, 2 * n_filters)
            transformed, gate = both.chunk(2, 1)  # (n_rows, n_filters) each
            vectors = torch.lerp(transformed.relu(), vectors, gate.sigmoid())
        if words is not None:
            words = padded_rows(words if order is None else words[order])
            vectors = torch.cat([words, vectors], 1)  # (n_rows, word_dim + n_filters)
        if self._projection is not None:
            vectors = self._linear(-1, vectors, prepared)  # (n_rows, output_dim)
        vectors = vectors[:n_words]
        return vectors if order is None else vectors[order.argsort()]

    def _max_over_ngrams(
        self, character_ids: torch.Tensor, tables: list[torch.Tensor], padding: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return what highway layers read, and the order of its words if it isn't the given one."""
        # (n_filters,)
        biases = torch.cat([convolution.bias for convolution in self.convolutions])  # type: ignore
        activation = self.options.activation
        if runs_triton(tables[0]):
            from allennlp_elmo_plugin.bilm.kernels.triton_ngrams import MaxOverNgrams

            of_filters = self.options.filters, activation, padding
            return MaxOverNgrams.apply(character_ids, tables[0], biases, *of_filters), None
        character_ids, order = character_ids.long(), None
        if character_ids.device.type == "cpu":
            groups, order = self._by_length(character_ids, padding)
        else:
            # Sizes that depend on the words would have to be copied from the GPU.
            width, after_end = tables[0].size(0), tables[0].size(1) - 1
            groups = [torch.nn.functional.pad(character_ids, (0, width - 1), value=after_end)]
        # (n_words, n_filters), sorted by length
        maxima = torch.cat([_MaxOverNgrams.apply(table, *groups) for table in tables], 1) + biases
        return maxima.relu() if activation == "relu" else maxima.tanh(), order

    def _linear(
        self, index: int, rows: torch.Tensor, prepared: EncoderWeights | None
    ) -> torch.Tensor:
        if prepared is not None:
            matrix, bias = prepared.linear[index]
            return matrix.product(rows.to(matrix.dtype), bias).to(rows.dtype)
        layer = self._linear_layers[index]
        return Linear.apply(rows, layer.weight, layer.bias, product_type(rows, self.precision))

    def _by_length(
        self, character_ids: torch.Tensor, padding: int
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        # Groups of words of nearly the same length, and the order of the words in them, (n_words,).
        # A group is cut one n-gram after its length, since all later n-grams are equal.
        places = torch.arange(1, character_ids.size(1) + 1, device="cpu")
        lengths = ((character_ids != padding) * places).amax(1)
        order = lengths.argsort()
        sorted_ids = character_ids[order]
        widest = max(width for width, _ in self.options.filters)
        steps = torch.div(lengths[order] - 1, _LENGTH_STEP, rounding_mode="floor") + 1
        if len(steps) < _FEW_WORDS:
            steps = steps[-1:].expand(len(steps))
        values, counts = steps.unique_consecutive(return_counts=True)
        groups = [
            group[:, : step * _LENGTH_STEP + widest]
            for group, step in zip(sorted_ids.split(counts.tolist()), values.tolist())
        ]
        return groups, order
