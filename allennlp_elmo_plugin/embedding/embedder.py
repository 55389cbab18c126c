"""Layers of sentences as numpy arrays: AllenNLP 0.9's `ElmoEmbedder`."""

import itertools
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import nullcontext
from functools import partial
from typing import IO, Any, Self
from weakref import WeakSet

import numpy as np
import torch

from allennlp_elmo_plugin.arguments import check_at_least
from allennlp_elmo_plugin.bilm.carried_state import InitialState
from allennlp_elmo_plugin.bilm.characters import Sentences, check_sentences
from allennlp_elmo_plugin.bilm.kernels.matrix_product import Precision
from allennlp_elmo_plugin.elmo.elmo_bilm import MAX_CACHED_WORDS, ElmoBiLm
from allennlp_elmo_plugin.embedding.batches import (
    POOLINGS,
    BatchEmbedder,
    Layers,
    Pooling,
    pool,
    select_layers,
)
from allennlp_elmo_plugin.embedding.corpus_embedder import CorpusEmbedder
from allennlp_elmo_plugin.embedding.nearest import MAX_OCCURRENCES, Neighbours, embed_word, nearest
from allennlp_elmo_plugin.files.atomic import PathLike
from allennlp_elmo_plugin.pretrained.find_model import BUNDLED_MODEL, find_model
from allennlp_elmo_plugin.progress import progress_of_command, step_bar
from allennlp_elmo_plugin.text.checks import check_words
from allennlp_elmo_plugin.text.lines import TextLines, open_lines, split_words

logger = logging.getLogger(__name__)

MOST_WORDS_AT_ONCE = 2**14  # More are sorted by length, with a progress bar.

DEFAULT_INITIAL_STATE: InitialState = "settled"

_WARNED: WeakSet["ElmoEmbedder"] = WeakSet()
"""Those that have warned of their text. It is no attribute, on which pickles would depend."""


class ElmoEmbedder(BatchEmbedder):
    """
    Embed sentences with a pretrained bidirectional language model.

    ```python
    embedder = ElmoEmbedder("tiny")  # or ElmoEmbedder("options.json", "weights.hdf5")
    # (3, 3, 256): layers, words, dimensions
    layers = embedder.embed_sentence(["A", "sentence", "."])
    ```

    The API is that of the class of the same name in AllenNLP 0.9, whose numbers are those of
    `initial_state="carried"`. Layer 0 is the one without context (the character encoder's output,
    twice). The LSTM layers follow, each with the forward half first.

    # Parameters

    See `Elmo`; the default model is `"tiny"`, the default `initial_state` is `"settled"`. After a
    whole model, the second argument may be the next one: `ElmoEmbedder("tiny", 0)`.

    vocab_to_cache : `Sequence[str]`, optional (default = `None`)
        Words whose vectors are computed in advance; the numbers are the same.
    device : `str | int | torch.device`, optional (default = the GPU `cuda_device`, the CPU for -1)
        Such as `"cuda:1"`, in place of `cuda_device`.
    model : `str | PathLike`, optional (default = `None`)
        Another name of `options_file`, for a whole model.
    """

    def __init__(
        self,
        options_file: PathLike | None = None,
        weight_file: PathLike | int | None = None,
        cuda_device: int = -1,
        vocab_to_cache: Sequence[str] | None = None,
        initial_state: InitialState = DEFAULT_INITIAL_STATE,
        precision: Precision = "float32",
        device: str | int | torch.device | None = None,
        model: PathLike | None = None,
    ) -> None:
        if isinstance(weight_file, int) + (cuda_device != -1) + (device is not None) > 1:
            raise ValueError("the device is given twice: leave out device or cuda_device")
        if isinstance(weight_file, int):
            cuda_device, weight_file = weight_file, None
        if model is not None:
            if options_file is not None:
                raise ValueError("the model is given twice: leave out model or options_file")
            options_file = model
        if options_file is None and weight_file is None:
            options_file = str(BUNDLED_MODEL)
            logger.warning('No model was named: using "tiny". AllenNLP used "original".')
        self.cuda_device = cuda_device
        words = list(dict.fromkeys(vocab_to_cache or []))
        self._names = options_file, weight_file
        bilm = ElmoBiLm(
            options_file,
            weight_file,
            initial_state=initial_state,
            precision=precision,
            # The text may have as many words again.
            max_cached_words=max(MAX_CACHED_WORDS, 2 * len(words)),
        )
        self.elmo_bilm = bilm.eval()
        if device is None:
            device = "cpu" if cuda_device < 0 else f"cuda:{cuda_device}"
        bilm.to(device)
        if words:
            bilm.token_layer.keep_words([*bilm.token_layer.boundary_words, *words])

    @classmethod
    def from_pretrained(cls, model: PathLike, **arguments: Any) -> Self:
        """Return `ElmoEmbedder(model, **arguments)`."""
        return cls(model, **arguments)

    @property
    def dim(self) -> int:
        """The dimensions of a word's vector in a layer."""
        return self.elmo_bilm.get_output_dim()

    def to(self, device: str | int | torch.device) -> Self:
        """Move the model to a device, and return this embedder."""
        self.elmo_bilm.to(device)
        return self

    def __repr__(self) -> str:
        bilm, name = self.elmo_bilm, " ".join(str(name) for name in self._names if name)
        shape = f"dimensions: {bilm.get_output_dim()}, layers: {bilm.num_layers}"
        return f"<{type(self).__name__} {name}, {shape}, device: {next(bilm.parameters()).device}>"

    def batch_to_embeddings(self, batch: Sentences) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Return the layers of tokenised sentences, not all of them empty, shape `(batch_size, layers,
        timesteps, 2 * projection size)`, and their mask, shape `(batch_size, timesteps)`.
        """
        batch = check_sentences(batch)
        with torch.no_grad():
            output = self.elmo_bilm.run_sentences(batch)
            # (batch_size, timesteps, 2 * projection size) each
            layers = [output.unpack(layer, strip=1) for layer in range(output.n_layers)]
        return torch.stack(layers, dim=1), output.packing.mask(strip=1)

    def embed_sentence(self, sentence: Sequence[str], output_format: Layers = "all") -> np.ndarray:
        """Return what `embed_batch` does, for one tokenised sentence."""
        return self.embed_batch([sentence], output_format)[0]

    def encode(
        self,
        sentences: Iterable[str | Sequence[str]],
        pooling: Pooling = "mean",
        layers: Layers = "average",
        tokenizer: Callable[[str], Sequence[str]] | None = None,
        batch_tokens: int = 4096,
        batch_size: int | None = None,
        show_progress_bar: bool = True,
        normalize_embeddings: bool = False,
        convert_to_tensor: bool = False,
    ) -> Any:
        """
        Return a vector of each sentence, shape `(n_sentences, dim)`: the `"mean"` or `"max"` of its
        words' vectors in `layers`, which are the `output_format` of `embed_batch`. For several, the
        shape is `(n_sentences, layers, dim)`. `tokenizer` splits strings, by default at white
        space. A sentence without words has zeros. With `normalize_embeddings`, the others have
        length 1; with `convert_to_tensor`, the result is a tensor, not an array. A batch has at
        most `batch_tokens` words and `batch_size` sentences.

            vectors = ElmoEmbedder().encode(["She sat on the bank .", "The bank paid ."])
        """
        self._check_not_carried()
        if isinstance(sentences, str):
            raise ValueError(f"got the text {sentences[:40]!r}; give a list of sentences: [text]")
        is_table = hasattr(sentences, "columns") or hasattr(sentences, "column_names")
        if is_table or isinstance(sentences, Mapping):  # as rows of Hugging Face's Dataset are
            raise ValueError('got a table: pass its column of sentences, such as table["text"]')
        if pooling not in POOLINGS:
            raise ValueError(f"pooling is {pooling!r}; give one of {tuple(POOLINGS)}")
        split = tokenizer or split_text
        words = check_sentences(split(s) if isinstance(s, str) else s for s in sentences)
        if not all(words):
            n_empty = sum(not sentence for sentence in words)
            logger.warning(f"{n_empty:,} of {len(words):,} sentences have no words: rows of zeros")
        self.warn_of_text(words, "" if tokenizer else "Pass strings and a `tokenizer`, or put")
        _, axes, dim = select_layers(self.elmo_bilm, layers)
        vectors = np.zeros((len(words), *axes, dim), "float32")
        with nullcontext() if show_progress_bar else progress_of_command(quiet=True):
            for i, array in self.embed_all(words, layers, batch_tokens, batch_size):
                vectors[i] = pool(array, pooling)
        if normalize_embeddings:
            lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
            vectors /= np.maximum(lengths, np.finfo("float32").tiny)
        return torch.from_numpy(vectors) if convert_to_tensor else vectors

    def warn_of_text(self, sentences: list[list[str]], how: str = "") -> None:
        """Do what `check_words` does with the first sentences, unless there was a warning."""
        if self not in _WARNED:
            start = sentences[:1000]
            counts = Counter(word.encode("utf-8", "ignore") for each in start for word in each)
            width = self.elmo_bilm.max_characters
            if check_words("the text", counts, len(start), width, how or "Put"):
                _WARNED.add(self)

    @staticmethod
    def similarity(embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Return the cosine of each vector of `(n, dim)` and each of `(m, dim)`: `(n, m)`."""
        both = (torch.atleast_2d(torch.as_tensor(each)) for each in (embeddings1, embeddings2))
        first, second = (torch.nn.functional.normalize(each, dim=-1) for each in both)
        return first @ second.T

    def embed_batch(self, batch: Sentences, output_format: Layers = "all") -> list[np.ndarray]:
        """
        Return `"all"` layers of each tokenised sentence, float32 of shape `(layers, tokens, dim)`,
        or several, by a list of their numbers; or, of shape `(tokens, dim)`, one by its number, the
        `"top"` one, the `"average"`, or all `"concatenated"`.
        """
        batch = check_sentences(batch)
        is_carried = self.elmo_bilm.initial_state == "carried"
        if is_carried or sum(map(len, batch)) <= MOST_WORDS_AT_ONCE:
            # A view would keep the whole batch in memory.
            return [layers.copy() for layers in self.view_batch(batch, output_format)]
        arrays = {i: layers.copy() for i, layers in self.embed_all(batch, output_format)}
        return [arrays[i] for i in range(len(batch))]

    def embed_sentences(
        self,
        sentences: Sentences,
        batch_size: int = 64,
        output_format: Layers = "all",
        show_progress_bar: bool = True,
    ) -> Iterator[np.ndarray]:
        """Yield what `embed_batch` returns, with one batch at a time in memory."""
        check_at_least(1, batch_size=batch_size)
        iterator, total = iter(sentences), len(sentences) if isinstance(sentences, Sized) else None
        bar = step_bar("embedding", total, " sentences") if show_progress_bar else nullcontext(int)
        with bar as update:
            while batch := list(itertools.islice(iterator, batch_size)):
                yield from self.embed_batch(batch, output_format)
                update(len(batch))

    def nearest(
        self,
        word: str,
        sentences: Sentences,
        queries: Sentences | None = None,
        n_nearest: int = 5,
        max_occurrences: int = MAX_OCCURRENCES,
    ) -> list[Neighbours]:
        """
        Find the occurrences of a word in a text that are most like the word in `queries`, sentences
        with it. Without queries, k-means divides the occurrences into two groups, and the one in
        the middle of each is a query. Of more than `max_occurrences`, a random sample is compared.

            for neighbours in ElmoEmbedder().nearest("bank", sentences):
                print(neighbours)

        The similarity is the cosine of the vectors of the top layer, from which the mean of those
        of all occurrences, and of five zero vectors, is subtracted. Equal sentences count once.
        """
        self._check_not_carried()
        vectors_of = partial(embed_word, self, output_format="top")
        return nearest(vectors_of, word, sentences, queries, n_nearest, max_occurrences)

    def embed_file(
        self,
        input_file: IO[Any] | PathLike,
        output_file_path: PathLike,
        output_format: Layers = "all",
        batch_size: int | None = 64,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
        include_sentence_indices: bool = False,
        overwrite: bool = False,
        resume: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """
        Embed a file of sentences, by its path or open for bytes (UTF-8, plain or gzip) or for text,
        into an HDF5 file.

        Every line is a sentence, also a blank one; ASCII white space separates its tokens. The help
        of the command `elmo` describes the file and the parameters; `options` are `batch_tokens`,
        `dtype`, `compression`, `num_shards`, `shard_index` and `pooling`. Return how the file was
        made, with the numbers of its `lines`, `sentences` and `tokens`, and of other shards'
        `missing_parts`; while there are any, there is no file.
        """
        flags = forget_sentences, use_sentence_keys, include_sentence_indices
        corpus_embedder = CorpusEmbedder(self, output_format, batch_size, *flags, **options)
        output = os.fspath(output_file_path)
        if isinstance(input_file, (str, os.PathLike)):
            with open_lines(input_file) as lines:
                return corpus_embedder.embed(lines, output, overwrite, resume)
        return corpus_embedder.embed(TextLines(input_file), output, overwrite, resume)

    def save(self, folder: PathLike) -> None:
        """Write the model to a folder, which is then another name of it."""
        if not self.elmo_bilm.layout.read_only:
            return self.elmo_bilm.save(folder)
        os.makedirs(folder, exist_ok=True)
        with find_model(*self._names) as files:
            if not files.options.parent.samefile(folder):
                shutil.copytree(files.options.parent, folder, dirs_exist_ok=True)

    save_pretrained = save

    def _check_not_carried(self) -> None:
        if self.elmo_bilm.initial_state == "carried":
            raise ValueError('"carried" states make vectors that can\'t be compared; use "settled"')


def split_text(text: str) -> list[str]:
    """Return the words of a sentence, by the rules of `text/lines.py`."""
    return split_words(text.encode("utf-8", "ignore"))
