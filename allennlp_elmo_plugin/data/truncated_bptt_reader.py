"""
The dataset reader of the language model's training: rows of windows of text as instances.
"""

import itertools
import logging
import os
import random
from pathlib import Path
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Sequence, Set, Tuple

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.dataset_readers import DatasetReader
from allennlp.data.fields import Field
from allennlp.data.instance import Instance
from allennlp.data.vocabulary import Vocabulary

from allennlp_elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN, CharacterTable
from allennlp_elmo_plugin.data.contiguous_rows import (
    ContiguousWindowStream,
    count_contiguous_windows,
)
from allennlp_elmo_plugin.data.fields import CharacterIdsField, VocabularyIdsField, WindowField
from allennlp_elmo_plugin.data.lexicon import IGNORED_TARGET, PADDING_NUMBER, Lexicon
from allennlp_elmo_plugin.data.text import PathOrPaths, SentenceStream, find_files
from allennlp_elmo_plugin.data.text_check import TextCheck
from allennlp_elmo_plugin.data.vocabulary import LM_NAMESPACE
from allennlp_elmo_plugin.data.windows import (
    TextPosition,
    Window,
    WindowBatch,
    WindowStream,
    count_windows,
)
from allennlp_elmo_plugin.files.text_lines import find_words, join_lines, open_lines

logger = logging.getLogger(__name__)

_NAMES = ("inputs", "targets", "inputs_reverse", "targets_reverse")
_EXACT_COUNT_BYTES = 256 * 2**20
_SAMPLE_BYTES = 2**20


@DatasetReader.register("truncated_bptt_lm")
class TruncatedBpttLmReader(DatasetReader):
    """
    Reads text for a language model that is trained by truncated back-propagation through time, as
    bilm-tf does (`allennlp_elmo_plugin.data.windows`). The text has one tokenised sentence a line,
    its words separated by ASCII white space; the data path is a file, a folder or a glob. Files may
    be compressed by gzip, whatever their names.

    An instance is one row of a batch: rows 0 to `batch_size - 1` of the first window, then those
    of the next. The data loader must keep this order and make batches of `batch_size` instances:
    "truncated_bptt" does, and so does AllenNLP's own with the same `batch_size`. The model checks
    it by the field `window`.

    One pass over the text is an epoch. The reader counts its passes over each path and shuffles
    each anew, by `seed` and the number of the pass alone. The last row of each window has the
    `TextPosition` after it, in the field `window`; after `set_position`, the next pass starts there
    without reading the text before it.

    In distributed training `batch_size` is that of one process. The processes share one set of
    rows, and each reads its part of them. Reading is much faster than training, so more than one
    worker of a data loader is refused.

    # Parameters

    batch_size : `int`
        The number of rows, each a stream of sentences.
    num_steps : `int`, optional (default = `20`)
        The number of words in a row of a window: gradients go no further back.
    max_characters_per_token : `int`, optional (default = `50`)
        As in the options of the model. `None` for a model with token embeddings: `tokens` are
        vocabulary ids.
    bidirectional : `bool`, optional (default = `True`)
        Whether to make the stream of the backward direction, too.
    shuffle_sentences : `bool`, optional (default = `False`)
        Read the files in random order and the sentences of a file in random order (within blocks
        of 64 MB, so that memory stays bounded), drawn for each direction separately. If `False`,
        the text is read as it is, files sorted by name.
    contiguous : `bool`, optional (default = `False`)
        How lines are distributed over the rows. `False`: each row takes the next line of the text
        when it has read its last, as in bilm-tf, so that neighbouring lines stand in different
        rows. `True`, for small corpora: the text is cut into as many parts of equal length as there
        are rows, and each row reads its part across the line ends; the backward direction reads the
        whole text from its end. With a batch size of 1, evaluation then has all text before (or
        after) a word as its context. The text is held in memory as numbers, 4 bytes a word and 4 a
        line, and can't be shuffled.
    drop_last : `bool`, optional (default = `True`)
        At the end of a pass, drop the batch that can't be filled, as bilm-tf does. Its words are
        counted in the log. Set it to `False` for evaluation: every word then counts once, and rows
        that end early are padded.
    seed : `int`, optional (default = `0`)
    encoding_errors : `str`, optional (default = `"strict"`)
        What to do with bytes that are not UTF-8: "strict" (an error that names file and line) or
        "replace" (by U+FFFD).
    max_instances : `int`, optional (default = `None`)
        Stop a pass after this many rows: a multiple of `batch_size`.
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
        super().__init__(
            manual_distributed_sharding=True, manual_multiprocess_sharding=True, **kwargs
        )
        limits: List[Tuple[str, Optional[int], int]] = [
            ("batch_size", batch_size, 1),
            ("num_steps", num_steps, 1),
        ]
        if max_characters_per_token is not None:
            limits.append(("max_characters_per_token", max_characters_per_token, 3))
        for name, value, least in limits:
            # AllenNLP lets a config's null pass for a number.
            if value is None or value < least:
                raise ConfigurationError(f"{name} is {value}, but must be at least {least}")
        if encoding_errors not in ("strict", "replace"):
            raise ConfigurationError(
                f'encoding_errors is {encoding_errors!r}, but must be "strict" or "replace"'
            )
        if contiguous and shuffle_sentences:
            raise ConfigurationError(
                "contiguous and shuffle_sentences are both true: contiguous rows read the lines in "
                "the order of the text. Set one of the two to false"
            )
        self.batch_size = batch_size
        self.num_steps = num_steps
        self.bidirectional = bidirectional
        self.shuffle_sentences = shuffle_sentences
        self.drop_last = drop_last
        self.seed = seed
        self.encoding_errors = encoding_errors
        self.contiguous = contiguous
        if self.max_instances is not None and self.max_instances % self._n_rows:
            raise ConfigurationError(
                f"max_instances is {self.max_instances}, but must be a multiple of the batch size "
                f"({self._n_rows} over all processes), since an instance is one row of a batch"
            )
        self._max_characters = max_characters_per_token
        self._table: Optional[CharacterTable] = None
        if max_characters_per_token is not None:
            self._table = CharacterTable(max_characters_per_token)
        self._starts: Dict[str, TextPosition] = {}
        self._checked: Set[str] = set()  # texts

    def get_epoch(self, file_path: PathOrPaths) -> int:
        """Return the number of the next pass over `file_path`, from 0."""
        return self._start(file_path).epoch

    def set_epoch(self, file_path: PathOrPaths, epoch: int) -> None:
        """Make the next pass over `file_path` that of this number, from 0."""
        self.set_position(file_path, TextPosition(epoch))

    def set_position(self, file_path: PathOrPaths, position: TextPosition) -> None:
        """Start the next pass over `file_path` at `position`, of a reader like this one."""
        self._starts[_key(file_path)] = position

    def _start(self, file_path: PathOrPaths) -> TextPosition:
        return self._starts.get(_key(file_path), TextPosition(0))

    def count_batches(self, file_path: PathOrPaths) -> int:
        """
        Return the number of batches in a pass over `file_path`. It is exact for contiguous rows,
        and for files of up to 256 MB together that are read in order; otherwise an estimate:
        shuffled sentences fill the last batches differently, and of a larger corpus only the starts
        of some files are counted.
        """
        files = [file for file in find_files(file_path) if file.stat().st_size]
        n_bytes = sum(file.stat().st_size for file in files)
        if self.contiguous:
            n_pairs = sum(length + 1 for length in _sentence_lengths(files))
            n_batches = count_contiguous_windows(
                n_pairs, self._n_rows, self.num_steps, drop_last=self.drop_last
            )
        elif n_bytes <= _EXACT_COUNT_BYTES:
            n_batches = count_windows(
                _sentence_lengths(files), self._n_rows, self.num_steps, drop_last=self.drop_last
            )
        else:
            n_pairs = n_read = 0
            for file in files[:: max(1, len(files) // 16)]:
                with open_lines(file, ConfigurationError) as text:
                    lines = text.read_block(_SAMPLE_BYTES)
                    n_pairs += sum(len(line.split()) + 1 for line in lines)
                    n_read += text.position
            n_batches = n_bytes * n_pairs // (n_read * self._n_rows * self.num_steps)
        if self.max_instances is not None:
            n_batches = min(n_batches, self.max_instances // self._n_rows)
        return n_batches

    @property
    def _n_rows(self) -> int:
        """The number of rows of all processes together."""
        info = self.get_distributed_info()
        return self.batch_size * (info.world_size if info else 1)

    @property
    def _first_row(self) -> int:
        """The first row of this process."""
        info = self.get_distributed_info()
        return self.batch_size * (info.global_rank if info else 0)

    def _read(self, file_path: PathOrPaths) -> Iterator[Instance]:
        worker = self.get_worker_info()
        if worker is not None and worker.num_workers > 1:
            raise ConfigurationError(
                f"num_workers is {worker.num_workers}, but one process has to read a stream of "
                "text; set num_workers of the data loader to 0 or 1"
            )
        for batch in self.read_batches(file_path):
            # Of each row, in the order of the arguments of `text_to_instance`.
            words = zip(*(rows for window in batch.windows for rows in window.words()))
            for row, row_words in enumerate(words):
                is_last = row == self.batch_size - 1
                position = batch.position() if is_last else None
                field = WindowField(batch.number, row, self.batch_size, position)
                arguments = dict(zip(_NAMES, row_words))
                yield self.text_to_instance(**arguments, window=field)

    def read_batches(
        self, file_path: PathOrPaths, vocab: Optional[Vocabulary] = None
    ) -> Iterator[WindowBatch]:
        """
        Yield the windows of a pass. `_read` makes instances of them; `make_tensors`, which needs
        `vocab`, makes the tensors that AllenNLP makes of these instances, in less time.
        """
        start = self._start(file_path)
        self.set_epoch(file_path, start.epoch + 1)
        lexicon = Lexicon(self._max_characters, vocab)
        streams = self._window_streams(file_path, start.epoch, lexicon)
        states = list(start.streams)
        for stream in streams:
            if states:
                stream.load_state_dicts([states.pop(0) for _ in stream.directions])
        windows_of_streams: Iterator[Sequence[List[Window]]]
        if self.drop_last:
            windows_of_streams = zip(*streams)
        else:
            # Both directions have as many pairs, but their rows may end at different times.
            nothing = np.full((self.batch_size, self.num_steps), PADDING_NUMBER, dtype=np.int32)
            no_words = Window(nothing, nothing, lexicon)
            windows_of_streams = itertools.zip_longest(*streams, fillvalue=[no_words])
        if self.max_instances is not None:
            n_left = self.max_instances // self._n_rows - start.n_windows
            windows_of_streams = itertools.islice(windows_of_streams, n_left)

        number = start.n_windows - 1
        for number, windows in enumerate(windows_of_streams, start.n_windows):

            def position(n_windows: int = number + 1) -> TextPosition:
                states = [state for stream in streams for state in stream.state_dicts()]
                return TextPosition(start.epoch, n_windows, states)

            yield WindowBatch(number, list(itertools.chain(*windows)), position)
            if lexicon.is_full and not self.contiguous:
                WindowStream.forget_words(lexicon, streams)
        if number < 0:
            self.raise_too_small(file_path)
        # The pass ends with the first of the streams, and both have as many words.
        n_dropped = max(stream.n_dropped for stream in streams)
        if n_dropped and not self._first_row:
            logger.info(
                "%s: dropped the last %d words to predict of pass %d, which do not fill %d rows of "
                "%d (drop_last)",
                file_path,
                n_dropped,
                start.epoch,
                self._n_rows,
                self.num_steps,
            )

    def make_tensors(self, batch: WindowBatch) -> Dict[str, torch.Tensor]:
        """
        Return the inputs of the model: `tokens`, `targets`, the same with `_reverse`, and `window`,
        all int64, shape (rows, num_steps), `tokens` also (rows, num_steps, max_characters).
        """
        tensors = {}
        for suffix, window in zip(("", "_reverse"), batch.windows):
            if self._max_characters is not None:
                tokens = window.lexicon.character_ids(window.inputs)
            else:
                tokens = window.lexicon.vocabulary_ids(window.inputs).clamp(min=0)
            tensors[f"tokens{suffix}"] = tokens
            tensors[f"targets{suffix}"] = window.lexicon.vocabulary_ids(window.targets)
        places = torch.empty(self.batch_size, 3, dtype=torch.long)
        places[:, 0], places[:, 2] = batch.number, self.batch_size
        torch.arange(self.batch_size, out=places[:, 1])
        tensors["window"] = places
        return tensors

    def _window_streams(self, file_path: PathOrPaths, epoch: int, lexicon: Lexicon) -> List[Any]:
        """
        Return a stream of both directions or, as each has its own order of shuffled sentences, one
        of each direction.
        """
        files = find_files(file_path)
        directions = ("forward", "backward") if self.bidirectional else ("forward",)
        stream_class = ContiguousWindowStream if self.contiguous else WindowStream
        streams: List[Any] = []
        check = None
        if self._max_characters is not None and not self._first_row:
            if _key(file_path) not in self._checked:
                check = TextCheck(str(file_path), self._max_characters)
                self._checked.add(_key(file_path))
        for together in zip(directions) if self.shuffle_sentences else [directions]:
            shuffle = None
            if self.shuffle_sentences:
                shuffle = random.Random(f"{self.seed} {epoch} {together[0]}")
            streams.append(
                stream_class(
                    SentenceStream(
                        files,
                        encoding_errors=self.encoding_errors,
                        shuffle=shuffle,
                        check=None if streams else check,
                    ),
                    self._n_rows,
                    self.num_steps,
                    directions=together,
                    drop_last=self.drop_last,
                    rows=range(self._first_row, self._first_row + self.batch_size),
                    lexicon=lexicon,
                )
            )
        return streams

    def raise_too_small(self, file_path: PathOrPaths) -> NoReturn:
        """Raise the error that says that `file_path` does not fill a batch."""
        lengths = list(_sentence_lengths(find_files(file_path)))
        if not lengths:
            raise ConfigurationError(f"There is no text to read in {file_path}")
        raise ConfigurationError(
            f"{file_path} is smaller than one batch: {len(lengths)} sentences with "
            f"{sum(lengths) + len(lengths)} words to predict don't fill {self._n_rows} rows of "
            f"{self.num_steps}; lower batch_size or num_steps of the dataset reader, or set "
            "drop_last false to pad what is missing"
        )

    def text_to_instance(
        self,
        inputs: List[str],
        targets: List[str],
        inputs_reverse: Optional[List[str]] = None,
        targets_reverse: Optional[List[str]] = None,
        window: Optional[WindowField] = None,
    ) -> Instance:
        """
        # Parameters

        inputs, targets : `List[str]`
            One row of a window: the words read, and for each the word to predict.
        inputs_reverse, targets_reverse : `List[str]`, optional
            The same for the backward direction's stream.
        window : `WindowField`, optional
            The place of the row. By default a batch of one row.

        # Returns

        `Instance`
            With the fields `tokens` (character ids, or vocabulary ids), `targets`, the same with
            `_reverse`, and `window`.
        """
        fields: Dict[str, Field] = {
            "tokens": self._input_field(inputs),
            "targets": self._target_field(targets),
        }
        if inputs_reverse is not None and targets_reverse is not None:
            fields["tokens_reverse"] = self._input_field(inputs_reverse)
            fields["targets_reverse"] = self._target_field(targets_reverse)
        fields["window"] = WindowField(0, 0, 1) if window is None else window
        return Instance(fields)

    def _input_field(self, words: List[str]) -> Field:
        # Tails are padded to full length: batches then have one shape, and none is empty.
        if self._table is not None:
            return CharacterIdsField(words, self._table, num_steps=self.num_steps)
        return VocabularyIdsField(words, LM_NAMESPACE, num_steps=self.num_steps)

    def _target_field(self, words: List[str]) -> Field:
        return VocabularyIdsField(
            words, LM_NAMESPACE, padding_value=IGNORED_TARGET, num_steps=self.num_steps
        )


def _sentence_lengths(files: List[Path]) -> Iterator[int]:
    for file in files:
        with open_lines(file, ConfigurationError) as text:
            while lines := text.read_block(_SAMPLE_BYTES):
                yield from find_words(join_lines(lines))[2].tolist()


def _key(file_path: PathOrPaths) -> str:
    if isinstance(file_path, (str, os.PathLike)):
        return os.fspath(file_path)
    return "\n".join(os.fspath(path) for path in file_path)
