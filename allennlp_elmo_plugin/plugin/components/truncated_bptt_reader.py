"""The dataset reader for training language models, which makes batches of windows of text."""

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.data_loaders.data_loader import TensorDict
from allennlp.data.dataset_readers import DatasetReader, DatasetReaderInput
from allennlp.data.instance import Instance
from allennlp.data.vocabulary import Vocabulary

from allennlp_elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN
from allennlp_elmo_plugin.plugin.registration import configuration_errors
from allennlp_elmo_plugin.text.checks import check_text
from allennlp_elmo_plugin.text.corpus import PathOrPaths, find_files, read_text
from allennlp_elmo_plugin.text.lexicon import Lexicon
from allennlp_elmo_plugin.text.vocabulary import LM_NAMESPACE
from allennlp_elmo_plugin.text.windows import Window, WindowStream

_COUNTED_BYTES = 32 * 2**20


@DatasetReader.register("truncated_bptt_lm")
class TruncatedBpttLmReader(DatasetReader):
    """
    Reads text for training by truncated back-propagation through time, as bilm-tf does. The text
    has one tokenised sentence a line, its words separated by ASCII white space; the data path is a
    file, a folder or a glob, plain or gzip.

    It makes batches for the data loader "truncated_bptt". An epoch is one pass over the text, and
    depends only on the settings and its number. In distributed training each process reads
    `batch_size` rows of one common set.

    # Parameters

    batch_size, num_steps : `int`
        The number of rows, each a stream of sentences, and of words in a row of a window.
        Gradients go no further back than a window.
    max_characters_per_token : `int`, optional (default = `50`)
        As in the options of the model; `None` for a model with token embeddings.
    bidirectional : `bool`, optional (default = `True`)
        Whether to make the windows of the backward direction, too.
    shuffle_sentences : `bool`, optional (default = `False`)
        Read the files in random order, and the sentences of a file in random order within blocks
        of 64 MB; the directions have different orders.
    drop_last : `bool`, optional (default = `True`)
        At the end of a pass, drop the batch that can't be filled, as bilm-tf does. With `False`,
        for evaluation, every word counts once, and rows that end early are padded.
    encoding_errors : `str`, optional (default = `"strict"`)
        For bytes that are not UTF-8: "strict" (an error) or "replace" (by U+FFFD).
    contiguous : `bool`, optional (default = `False`)
        `False`: each row takes the next unread line when its own ends, as in bilm-tf, so that
        neighbouring lines stand in different rows. `True`, for texts that fit in memory: each row
        reads a part of the text from line to line, and the backward direction the whole text from
        its end. With one row, each word of an evaluation has all text before (or after) it.
    max_instances : `int`, optional (default = `None`)
        Stop a pass after this many rows, those of whole batches.
    """

    def __init__(
        self,
        batch_size: int,
        num_steps: int = 20,
        max_characters_per_token: Optional[int] = MAX_CHARACTERS_PER_TOKEN,
        bidirectional: bool = True,
        shuffle_sentences: bool = False,
        drop_last: bool = True,
        seed: int = 0,
        encoding_errors: str = "strict",
        contiguous: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("batch_size", batch_size), ("num_steps", num_steps)):
            if value is None or value < 1:  # AllenNLP lets a config's null pass for a number.
                raise ConfigurationError(f"{name} is {value}, but must be at least 1")
        self.batch_size = batch_size
        self.num_steps = num_steps
        self.bidirectional = bidirectional
        self.shuffle_sentences = shuffle_sentences
        self.drop_last = drop_last
        self.seed = seed
        self.encoding_errors = encoding_errors
        self.contiguous = contiguous
        self._max_characters = max_characters_per_token

    @property
    def _rows(self) -> tuple[int, range]:
        """The number of rows of all processes together, and the rows of this process."""
        info = self.get_distributed_info()
        first = self.batch_size * (info.global_rank if info else 0)
        n_rows = self.batch_size * (info.world_size if info else 1)
        return n_rows, range(first, first + self.batch_size)

    def batches(
        self,
        file_path: PathOrPaths,
        epoch: int = 0,
        skip: int = 0,
        vocab: Optional[Vocabulary] = None,
    ) -> Iterator[TensorDict]:
        """
        Yield the batches of an epoch after the first `skip`, which are read without making tensors.
        A batch has the arguments of `BidirectionalLanguageModel.forward`, int64 but for the int16
        `character_ids`.
        """
        with configuration_errors():
            files = find_files(file_path)
            n_rows, rows = self._rows
            directions = ("forward", "backward") if self.bidirectional else ("forward",)
            word_ids = None
            if vocab is not None:
                word_ids = vocab.get_token_to_index_vocabulary(LM_NAMESPACE)
            lexicon = Lexicon(self._max_characters, word_ids)
            if not (epoch or skip or rows.start):
                texts = read_text(files, self.encoding_errors)
                check_text(str(file_path), texts, self._max_characters, word_ids)
            streams = []
            # Each direction has an order of its own of shuffled sentences.
            for together in zip(directions) if self.shuffle_sentences else [directions]:
                seed = f"{self.seed} {epoch} {together[0]}"
                shuffle = random.Random(seed) if self.shuffle_sentences else None
                texts = read_text(files, self.encoding_errors, shuffle)
                streams.append(self._stream(texts, lexicon, together))
            of_streams = [stream.fill_rows() for stream in streams]
            if self.drop_last:
                filled: Iterator[Any] = zip(*of_streams)
            else:
                # One direction may end earlier.
                padding = [-1, -1, self.batch_size * self.num_steps]
                filled = itertools.zip_longest(*of_streams, fillvalue=padding)
            if self.max_instances is not None:
                filled = itertools.islice(filled, self.max_instances // n_rows)
            number = -1
            for number, runs in enumerate(filled):
                if number >= skip:
                    windows = map(WindowStream.windows, streams, runs)
                    yield self._batch(number, lexicon, list(itertools.chain(*windows)))
            if number < 0:
                raise ConfigurationError(
                    f"{file_path} is smaller than one batch: its words don't fill {n_rows} rows of "
                    f"{self.num_steps}; lower batch_size or num_steps of the dataset reader, or "
                    "set drop_last false to pad what is missing"
                )

    @configuration_errors()
    def count_batches(self, file_path: PathOrPaths) -> int:
        """
        Return the number of batches in an epoch. It is exact for a text of up to 32 MB that is read
        in order, and otherwise an estimate from its start.
        """
        files = find_files(file_path)
        n_read: list[int] = []
        texts = read_text(files, "replace", update=n_read.append)
        start = itertools.takewhile(lambda text: sum(n_read) <= _COUNTED_BYTES, texts)
        n_batches = sum(1 for _ in self._stream(start, Lexicon()).fill_rows())
        n_batches = n_batches * sum(file.stat().st_size for file in files) // sum(n_read)
        if self.max_instances is not None:
            n_batches = min(n_batches, self.max_instances // self._rows[0])
        return n_batches

    def _stream(
        self, texts: Iterator[bytes], lexicon: Lexicon, directions: Sequence[str] = ("forward",)
    ) -> WindowStream:
        n_rows, rows = self._rows
        return WindowStream(
            texts,
            n_rows,
            self.num_steps,
            lexicon,
            directions=directions,
            drop_last=self.drop_last,
            contiguous=self.contiguous,
            returned=rows,
        )

    def _batch(self, number: int, lexicon: Lexicon, windows: list[Window]) -> TensorDict:
        inputs = np.stack([window.inputs for window in windows])  # (n_directions, rows, num_steps)
        place = [[number, row, self.batch_size] for row in range(self.batch_size)]
        batch: TensorDict = {"window": torch.tensor(place)}
        if self._max_characters is None:
            tokens = lexicon.vocabulary_ids(inputs).clamp(min=0)
        else:
            words, places = np.unique(inputs, return_inverse=True)
            tokens = torch.from_numpy(places.reshape(inputs.shape))
            batch["character_ids"] = lexicon.character_ids(words)
        for suffix, ids, window in zip(("", "_reverse"), tokens, windows):
            batch[f"tokens{suffix}"] = ids
            batch[f"targets{suffix}"] = lexicon.vocabulary_ids(window.targets)
        return batch

    def _read(self, file_path: DatasetReaderInput) -> Iterator[Instance]:
        raise ConfigurationError(
            'The dataset reader "truncated_bptt_lm" makes batches, not instances: use the data '
            'loader "truncated_bptt", and a vocabulary "from_files" of `allennlp elmo-vocab`'
        )
