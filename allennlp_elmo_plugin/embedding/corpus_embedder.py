"""A text file to a file of layers: what the command `elmo` and `ElmoEmbedder.embed_file` share."""

import logging
import math
import os
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from allennlp_elmo_plugin.arguments import check_at_least
from allennlp_elmo_plugin.elmo.elmo_bilm import MAX_CACHED_WORDS
from allennlp_elmo_plugin.embedding import batches, layers_file
from allennlp_elmo_plugin.embedding.parts import Part, PartsFolder
from allennlp_elmo_plugin.files.atomic import check_writable
from allennlp_elmo_plugin.pretrained.find_model import BUNDLED_MODEL
from allennlp_elmo_plugin.progress import progress_bar, skip_to, step_bar
from allennlp_elmo_plugin.text.checks import check_text
from allennlp_elmo_plugin.text.lines import SentenceLine, TextLines

logger = logging.getLogger(__name__)

PART_WORDS = 2**15
"""A part ends with the line that has this word; the end of a line counts as one."""

_N_BEHIND = 3  # batches that a GPU computes, or that wait to be written
_COMMON_PARTS = 8  # whose words are encoded once for all parts
_CARRIED_BATCH_SIZE = 64
_CHOICES: dict[str, tuple[str | None, ...]] = {
    "dtype": layers_file.DTYPES,
    "compression": (*layers_file.COMPRESSIONS, None),
    "pooling": (*batches.POOLINGS, None),
}
_OTHER_FORMATS = (".npy", ".npz", ".csv", ".tsv", ".json", ".jsonl", ".parquet", ".pt", ".pkl")
_TOTALS = dict.fromkeys(("lines", "sentences", "tokens", "checksum", "missing_parts"), 0)
_OTHER_TEXT = "Give the same text, or start again (`--force` without `--resume`)"
_REPLACE = "ask for it to be replaced (`--force`, or `overwrite=True` in Python)"


@dataclass
class CorpusEmbedder:
    """
    Embeds the lines of a text into an HDF5 file. See `ElmoEmbedder.embed_file` for the parameters.

    The text is divided into parts of 32,768 words, which are embedded, written to a folder, and
    joined at the end. A part that is in the folder is not embedded again: this is how a run
    resumes, and how processes share a text. The numbers of a part are the same to the last bit in
    any process. They depend on earlier parts only by carried states, which are saved with each.
    """

    embedder: batches.BatchEmbedder
    output_format: batches.Layers = "all"
    batch_size: int | None = None
    forget_sentences: bool = False
    use_sentence_keys: bool = False
    include_sentence_indices: bool = False
    batch_tokens: int = 4096
    dtype: str = "float32"
    compression: str | None = None
    num_shards: int = 1
    shard_index: int = 0
    pooling: str | None = None

    def __post_init__(self) -> None:
        self._bilm = self.embedder.elmo_bilm
        self._is_carried = self._bilm.initial_state == "carried"
        if self.batch_size is None and self._is_carried:
            self.batch_size = _CARRIED_BATCH_SIZE
        self._check()
        names = ["sentence_to_index", "sentence_indices"][: 1 + self.include_sentence_indices]
        self._mappings = [] if self.forget_sentences or self.use_sentence_keys else names
        _, self._layers, self._dim = batches.select_layers(self._bilm, self.output_format)
        self.n_embedded = 0
        """How many words have been embedded, not found in earlier parts."""
        # What the layers depend on, except the text
        self._part_settings = {
            **self._bilm.fingerprint(),
            "layers": str(self.output_format),
            "dtype": self.dtype,
            "batch_size": self.batch_size,
            "batch_tokens": None if self._is_carried else self.batch_tokens,
            **({"pooling": self.pooling} if self.pooling else {}),
        }
        # What the content of the file depends on
        self._settings = {
            **self._part_settings,
            "compression": self.compression,
            "keys": "sentences" if self.use_sentence_keys else "line numbers",
            "mappings": self._mappings,
        }

    def _check(self) -> None:
        """Raise a `ValueError` for an argument that is wrong, or two that contradict."""
        sizes = {"batch_size": self.batch_size, "batch_tokens": self.batch_tokens}
        check_at_least(1, num_shards=self.num_shards, **sizes)
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; give one of {allowed}")
        if self.include_sentence_indices and (self.forget_sentences or self.use_sentence_keys):
            raise ValueError("sentence indices need sentences and indices; leave out one option")
        if self.pooling and self.use_sentence_keys:
            raise ValueError("a vector a sentence is a row, not a key; leave out one option")
        if self.shard_index not in range(self.num_shards):
            raise ValueError(f"there is no shard {self.shard_index} of {self.num_shards}, from 0")
        if self.num_shards > 1 and self._is_carried:
            raise ValueError("a text of carried states can't be divided; use settled ones, or zero")

    def embed(
        self, lines: TextLines, path: str, overwrite: bool = False, resume: bool = False
    ) -> dict[str, Any]:
        """
        Embed a text into the file `path`; see `ElmoEmbedder.embed_file`. Return the settings, the
        text's totals and checksum, and the number of `missing_parts` of other shards.
        """
        path = os.path.expanduser(os.fspath(path))
        resume = resume or self.num_shards > 1
        folder = PartsFolder(path)
        complete = layers_file.read_summary(path) if resume else {}
        summary = {**self._settings, **_TOTALS}
        if self._settings.items() <= complete.items():
            for _ in self._divide(lines, summary):
                pass
            if summary != complete:
                raise ValueError(
                    f"{lines.name} is not the text of {path}, which has {complete['lines']:,} "
                    f"lines and another checksum. {_OTHER_TEXT}"
                )
            folder.remove()  # if the process was killed before it did
            return complete
        check_output(path, overwrite, resume)
        if self.num_shards == 1:
            with (
                self._work_in(folder, anew=overwrite and not resume),
                folder.lock("join", wait=True),
                self._joined(folder, path, lines.name, summary) as join_next,
            ):
                self._embed_parts(lines, folder, summary, join_next)
            folder.remove()
            return summary
        summary = self.write_parts(lines, path)
        complete = {**summary, "missing_parts": 0}
        with folder.lock("join", wait=True):
            # Another shard may have joined them in the meantime.
            if folder.has_parts() or layers_file.read_summary(path) != complete:
                if summary["missing_parts"]:
                    return summary
                with self._joined(folder, path, lines.name, complete):
                    pass
            folder.remove()
        return complete

    def write_parts(self, lines: TextLines, path: str) -> dict[str, Any]:
        """Write the parts of this shard that are missing, as `embed` does."""
        folder = PartsFolder(path, self.shard_index)
        summary = {**self._settings, **_TOTALS}
        with self._work_in(folder):
            self._embed_parts(lines, folder, summary)
        return summary

    @contextmanager
    def _work_in(self, folder: PartsFolder, anew: bool = False) -> Iterator[None]:
        """Lock this shard, with the parts that it finds and, for the block, words of its own."""
        with folder.lock(f"shard-{self.shard_index}"):
            folder.start(self._part_settings, anew)
            # The rounding of a word's vector depends on the words that are encoded with it: those
            # of its part, or of an early part, from which the vector is kept.
            encoder = self._bilm.token_layer
            encoder.word_cache.forget()
            n_kept = encoder.word_cache.n_kept
            try:
                yield
            finally:
                encoder.word_cache.forget(n_kept)
                if self.num_shards == 1 and not folder.has_parts():
                    folder.remove()

    def _embed_parts(
        self,
        lines: TextLines,
        folder: PartsFolder,
        summary: dict[str, Any],
        join_next: Callable[[], Any] = int,
    ) -> None:
        """Embed the parts that are missing, and call `join_next` for each part that is there."""
        if self._bilm.initial_state == "settled":
            self._bilm.settled_state()
        common: list[list[str]] = []  # words of the first parts that have not been encoded yet
        missing: list[int] = []  # other shards' parts that were not there when this one passed
        n_behind = _N_BEHIND if next(self._bilm.parameters()).device.type == "cuda" else 0
        with (
            progress_bar(total=lines.size, unit="B", unit_scale=True, desc="embedding") as bar,
            _calls_behind(n_behind) as call_join,
            _calls_behind(n_behind) as call,
        ):
            for number, part in enumerate(self._divide(lines, summary)):
                if number == 0:
                    text = b"".join(_text(line.sentence) for line in part)
                    check_text(lines.name, [text], self._bilm.max_characters)
                    self._check_script(lines.name, text)
                if number < _COMMON_PARTS:
                    common.append([word for line in part for word in line.words])
                if finished := folder.read(number):
                    self._continue_from(finished, part, lines.name)
                    skip_to(bar, lines.position)
                elif number % self.num_shards == self.shard_index:
                    self.n_embedded += sum(len(line.words) for line in part)
                    writing = folder.write(number, [line.sentence for line in part])
                    next(writing)
                    self._embed_part(part, common, writing, call)
                else:
                    missing.append(number)
                call(call_join, join_next)  # once the part is written
                bar.set_postfix_str(f"{summary['sentences']:,} sentences", refresh=False)
                bar.update(lines.position - bar.n)
        if not summary["lines"]:
            logger.warning(f"{lines.name}: is empty, so the output has no sentences")
        summary["missing_parts"] = sum(not folder.has(number) for number in missing)

    def _check_script(self, name: str, text: bytes) -> None:
        is_bundled = Path(self._bilm.token_layer._weight_file).parent == BUNDLED_MODEL
        n_foreign = len(text.translate(None, bytes(range(128))))  # bytes beyond ASCII
        if is_bundled and n_foreign > len(text) / 4:
            logger.warning(
                f'{name}: most letters are not Latin, but "tiny" was trained on English only. Name '
                "a model of the text's language."
            )

    def _divide(self, lines: TextLines, summary: dict[str, Any]) -> Iterator[list[SentenceLine]]:
        """Yield the lines of each part, after adding them to the summary's totals."""
        part: list[SentenceLine] = []
        n_words = 0
        batch_size = self.batch_size if self._is_carried and self.batch_size else 1
        for line in lines:
            part.append(line)
            n_words += len(line.words) + 1
            summary["lines"] = summary["sentences"] = line.number + 1
            summary["tokens"] += len(line.words)
            summary["checksum"] = zlib.crc32(_text(line.sentence), summary["checksum"])
            if n_words >= PART_WORDS and len(part) % batch_size == 0:
                yield part
                part, n_words = [], 0
        if part:
            yield part

    def _continue_from(self, part: Part, lines: list[SentenceLine], name: str) -> None:
        """Check that a part has these lines, and restore the states after it."""
        if part.sentences != [line.sentence for line in lines]:
            raise ValueError(
                f"{name} is not the text that the run to resume has read: one of lines "
                f"{lines[0].number + 1} to {lines[-1].number + 1} has changed. {_OTHER_TEXT}"
            )
        if part.states is not None:
            self._bilm.lstm._states = part.states

    def _embed_part(
        self,
        lines: list[SentenceLine],
        common: list[list[str]],
        writing: Generator[None, Any, None],
        call: Callable[..., None],
    ) -> None:
        """Embed the lines of a part, after keeping the words of the first parts for all parts."""
        encoder = self._bilm.token_layer
        while common:
            encoder.word_cache.forget()
            words = common.pop(0)
            if encoder.word_cache.n_kept < MAX_CACHED_WORDS // 2:
                encoder.keep_words(words)
        encoder.word_cache.forget()
        lengths = [len(line.words) for line in lines]
        chosen = batches.batches_by_length(lengths, self.batch_tokens, self.batch_size)
        if self._is_carried and self.batch_size:
            rows = range(len(lengths))
            chosen = (rows[i : i + self.batch_size] for i in rows[:: self.batch_size])
        for batch in chosen:
            sentences = [lines[i].words for i in batch]
            running = self.embedder.launch_batch(sentences, self.output_format)
            call(self._write_batch, writing, batch, running)
        states = self._bilm.lstm._states if self._is_carried else None
        call(_finish, writing, states and [state.cpu() for state in states])

    def _write_batch(
        self,
        writing: Generator[None, Any, None],
        batch: Sequence[int],
        running: list[batches.RunningBatch],
    ) -> None:
        """Write a batch of the lines of a part, which are given by their indices."""
        for part in running:
            rows, n_rows = part.wait(), part.n_rows
            if self.pooling:
                pooled = [batches.pool(layers, self.pooling) for layers in part.wait_for_arrays()]
                rows = np.concatenate(pooled).reshape(-1, rows.shape[1])
                n_rows = [math.prod(self._layers)] * len(pooled)
            indices, batch = batch[: len(n_rows)], batch[len(n_rows) :]
            writing.send((indices, rows.astype(self.dtype, copy=False), n_rows))

    @contextmanager
    def _joined(
        self, folder: PartsFolder, path: str, name: str, summary: dict[str, Any]
    ) -> Iterator[Callable[[], int]]:
        """
        Write the output from all parts. In the block, which gives `summary` the text's totals, the
        function that is yielded may add the next part. It returns its number of sentences, or 0.
        """
        mapping: dict[str, str] = {}
        dim = self._dim
        number = checksum = 0
        parts = iter(folder)

        def join_next() -> int:
            nonlocal number, checksum
            part = next(parts, None)
            if part is None:
                return 0
            if self.pooling:
                # A row is in memory until the next one is read.
                vectors = [rows.reshape(*self._layers, dim).copy() for rows in part.rows]
                file.add_rows(np.stack(vectors))
            for sentence in part.sentences:
                checksum = zlib.crc32(_text(sentence), checksum)
                if not self.pooling:
                    layers = next(part.rows).reshape(*self._layers, -1, dim)
                    if not self.use_sentence_keys:
                        file.add(str(number), layers)
                    elif self._is_carried or sentence not in mapping:
                        file.add_sentence(sentence, layers, f"{name}, line {number + 1}")
                if self._mappings or self.use_sentence_keys:
                    mapping[sentence] = str(number)
                number += 1
            return len(part.sentences)

        with layers_file.open_layers_file(path, self.compression, folder.staging) as file:
            if self.pooling:
                file.add_rows(np.empty((0, *self._layers, dim), self.dtype))
            yield join_next
            with step_bar("joining", summary["sentences"], " sentences") as update:
                while n_sentences := join_next():
                    update(n_sentences)
            if (number, checksum) != (summary["sentences"], summary["checksum"]):
                raise ValueError(f"the parts of {path} are not those of {name}. {_OTHER_TEXT}")
            if self._mappings:
                file.write_mapping(mapping, self._mappings)
            file.write_summary(summary)


def check_output(path: str, overwrite: bool = False, resume: bool = False) -> None:
    """Raise an `OSError` or `ValueError` unless the output can be written or replaced."""
    path = os.path.expanduser(path)
    check_writable(path)
    if path.endswith(_OTHER_FORMATS):
        raise ValueError(f"{path}: the output is an HDF5 file; end its name with .hdf5")
    if os.path.lexists(path) and not overwrite:
        raise ValueError(f"{path} exists already; remove it, choose another name, or {_REPLACE}")
    if not (overwrite or resume) and PartsFolder(path).has_parts():
        raise ValueError(
            f"{path}.parts is there, of a run that did not finish or is still running; "
            f"continue it (`--resume`, or `resume=True` in Python), or {_REPLACE}"
        )


def _text(sentence: str) -> bytes:
    return f"{sentence}\n".encode()


def _finish(writing: Generator[None, Any, None], states: list[torch.Tensor] | None) -> None:
    with suppress(StopIteration):
        writing.send(states)


@contextmanager
def _calls_behind(n_behind: int) -> Iterator[Callable[..., None]]:
    """
    Yield a function that makes a call in a thread, in which calls wait for the earlier ones. When
    it returns, at most `n_behind` calls are unfinished. It raises what they have raised.
    """
    calls: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(1) as thread:

        def call(function: Callable[..., Any], *arguments: Any) -> None:
            calls.append(thread.submit(function, *arguments))
            while len(calls) > n_behind:
                calls.popleft().result()

        yield call
        for unfinished in calls:
            unfinished.result()
