"""A text file to a file of layers: what `allennlp elmo` and `ElmoEmbedder.embed_file` share."""

import base64
import ctypes
import io
import itertools
import os
import posixpath
import time
from typing import Any, Dict, Iterator, List, Optional, Protocol, Sequence

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import lazy_groups_of

from allennlp_elmo_plugin.data.text_check import TextCheck
from allennlp_elmo_plugin.embedding.layers_file import (
    MAX_MAPPING_BYTES,
    LayersFile,
    complete_summary,
)
from allennlp_elmo_plugin.files.text_lines import SentenceLine, TextLines
from allennlp_elmo_plugin.progress import progress_bar, step_bar

SHARD_LINES = 1024
"""Blocks of so many lines go to the shards in turn. A pool ends where a block ends."""

_POOL_TOKENS = 2**15
_CHECKPOINT_SECONDS = 30.0
_CARRIED_BATCH_SIZE = 64
_COMPARED_LINES = 2**16  # at once
OWN_SETTINGS = ("shard_index", "batch_size", "batch_tokens")
"""Settings in which the shards of one text may differ."""

_OTHER_TEXT = "Give the same text, or start again (`--force` without `--resume`)"
_PROGRESS = ("lines", "checksum", "sentences", "tokens", "seconds")


class Embedder(Protocol):
    """What embeds batches: an `ElmoEmbedder`."""

    elmo_bilm: Any

    def embed_batch(self, batch: List[List[str]], output_format: str = "all") -> List[Any]:
        """See `ElmoEmbedder.embed_batch`."""


class CorpusEmbedder:
    """
    Embeds the lines of a text into a `LayersFile`, in memory that does not grow with the text.

    Lines are read ahead into a pool, embedded in batches and written in the order of the text.
    Where the language model's states are carried from batch to batch, batches are those of AllenNLP
    0.9: `batch_size` lines in their order. Otherwise a sentence's layers don't depend on its
    neighbours, and batches are made of the pool's sentences of similar lengths.

    The pools are the same whether a run was interrupted or the text divided into shards, and one
    pool does not depend on another, except by carried states, which are saved. So the numbers are
    the same to the last bit (on the same machine, with enough memory).

    # Parameters

    embedder : `ElmoEmbedder`
    output_format, batch_size, batch_tokens, forget_sentences, use_sentence_keys,
    include_sentence_indices, dtype, compression, num_shards, shard_index
        See `ElmoEmbedder.embed_file`.

    # Raises

    `ConfigurationError`
        The options contradict each other.
    """

    def __init__(
        self,
        embedder: Embedder,
        output_format: str = "all",
        batch_size: Optional[int] = None,
        batch_tokens: int = 4096,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
        include_sentence_indices: bool = False,
        dtype: str = "float32",
        compression: Optional[str] = None,
        num_shards: int = 1,
        shard_index: int = 0,
    ) -> None:
        self._embedder = embedder
        self._carried = embedder.elmo_bilm.initial_state == "carried"
        if batch_size is None and self._carried:
            batch_size = _CARRIED_BATCH_SIZE
        if batch_size is not None and batch_size < 1:
            raise ConfigurationError(f"the batch size is {batch_size}; it must be at least 1")
        if batch_tokens < 1:
            raise ConfigurationError(f"a batch has {batch_tokens} tokens; it must be at least 1")
        if include_sentence_indices and (forget_sentences or use_sentence_keys):
            raise ConfigurationError(
                "sentence indices can be included only when sentences are not forgotten and not "
                "keys themselves; leave out one of the options"
            )
        if num_shards < 1:
            raise ConfigurationError(f"there are {num_shards} shards; there must be at least 1")
        if not 0 <= shard_index < num_shards:
            raise ConfigurationError(
                f"there is no shard {shard_index} of {num_shards}; they are numbered from 0 to "
                f"{num_shards - 1}"
            )
        if num_shards > 1 and self._carried:
            raise ConfigurationError(
                "carried states go through the whole text, so it can't be divided into shards; "
                'choose the initial state "settled" or "zero"'
            )
        self._output_format = output_format
        self._batch_size = batch_size
        self._batch_tokens = batch_tokens
        self._use_sentence_keys = use_sentence_keys
        self._mappings: List[str] = []
        if not (forget_sentences or use_sentence_keys):
            self._mappings = ["sentence_to_index"]
            if include_sentence_indices:
                self._mappings.append("sentence_indices")
        self._dtype = dtype
        self._compression = compression
        self._num_shards = num_shards
        self._shard_index = shard_index

    def settings(self) -> Dict[str, Any]:
        """Return what the content of the file depends on, except the text."""
        return {
            **self._embedder.elmo_bilm.fingerprint(),
            "layers": self._output_format,
            "dtype": self._dtype,
            "compression": self._compression,
            "keys": "sentences" if self._use_sentence_keys else "line numbers",
            "mappings": self._mappings,
            "batch_size": self._batch_size,
            "batch_tokens": None if self._carried else self._batch_tokens,
            "num_shards": self._num_shards,
            "shard_index": self._shard_index,
        }

    def embed(
        self, lines: TextLines, path: str, overwrite: bool = False, resume: bool = False
    ) -> Dict[str, Any]:
        """
        # Parameters

        lines : `TextLines`
            The text, from its start.
        path : `str`
            The output.
        overwrite, resume : `bool`, optional (default = `False`)
            See `LayersFile`.

        # Returns

        `Dict[str, Any]`
            The settings, `lines` of the text and their `checksum`; `sentences` in the file, their
            `tokens`, and the `seconds` that it took.
        """
        self._check_mapping_fits(lines)
        settings = self.settings()
        if resume:
            summary = finished(path, settings, lines)
            if summary is not None:
                return summary
        file = LayersFile(path, overwrite, resume, settings, self._dtype, self._compression)
        with file:
            self._start(lines, file.progress)
            progress = self._embed_rest(lines, file)
            file.finish(progress)
        return {**settings, **progress}

    def _check_mapping_fits(self, lines: TextLines) -> None:
        """Refuse at once a text whose mapping `LayersFile`, or that of all shards, can't hold."""
        size = 0 if lines.is_gzip else lines.size or 0
        if self._mappings and size > MAX_MAPPING_BYTES:
            raise ConfigurationError(
                f"{lines.name} has {size:,} bytes, but sentence_to_index, which has all sentences, "
                f"can have {MAX_MAPPING_BYTES:,} in HDF5; leave it out (`--forget-sentences`)"
            )

    def _embed_rest(self, lines: TextLines, file: LayersFile) -> Dict[str, Any]:
        """Embed what follows in the text, and return the totals of the file."""
        progress = {key: file.progress.get(key, 0) for key in _PROGRESS}
        seconds, tokens = progress["seconds"], progress["tokens"]
        started = last_checkpoint = time.monotonic()

        def position() -> int:
            return lines.position if lines.size else lines.offset

        with progress_bar(
            total=lines.size, initial=position(), unit="B", unit_scale=True, desc="embedding"
        ) as bar:

            def update() -> None:
                progress["lines"], progress["checksum"] = lines.number, lines.checksum
                progress["seconds"] = seconds + time.monotonic() - started
                bar.update(position() - bar.n)

            update()
            check = TextCheck(lines.name, self._embedder.elmo_bilm.max_characters)
            for pool in self._pools(lines):
                text = "".join(f"{line.sentence}\n" for line in pool)
                check.add(text.encode("utf-8", "ignore"))
                self._write(pool, file, lines.name)
                _trim_memory()
                progress["sentences"] += len(pool)
                progress["tokens"] += sum(len(line.words) for line in pool)
                update()
                rate = (progress["tokens"] - tokens) / max(progress["seconds"] - seconds, 1e-9)
                bar.set_postfix_str(
                    f"{progress['sentences']:,} sentences, {rate:,.0f} words/s", refresh=False
                )
                if time.monotonic() - last_checkpoint >= _CHECKPOINT_SECONDS:
                    file.checkpoint({**progress, "state": self._state()})
                    last_checkpoint = time.monotonic()
            check.finish()
            update()  # Lines of other shards may follow the last pool.
            if self._mappings:
                file.write_mapping(self._mappings)
        return progress

    def _start(self, lines: TextLines, progress: Dict[str, Any]) -> None:
        """Read up to the last checkpoint, and restore the states of the language model."""
        bilm = self._embedder.elmo_bilm
        if bilm.initial_state == "settled":
            # Before there are words in whose company they would be rounded differently.
            self._forget_words()
            bilm.settled_state()
        if progress:
            _check_text(lines, progress)
            if progress["state"] is not None:
                state = io.BytesIO(base64.b64decode(progress["state"]))
                bilm.lstm.carried.load_state_dict(torch.load(state, weights_only=True))

    def _forget_words(self) -> None:
        self._embedder.elmo_bilm.token_layer.forget_words()

    def _state(self) -> Optional[str]:
        if not self._carried:
            return None
        buffer = io.BytesIO()
        torch.save(self._embedder.elmo_bilm.lstm.carried.state_dict(), buffer)
        return base64.b64encode(buffer.getvalue()).decode("ascii")

    def _pools(self, lines: TextLines) -> Iterator[List[SentenceLine]]:
        """Yield the lines that are embedded and written together."""
        pool: List[SentenceLine] = []
        n_tokens = 0
        while True:
            block = lines.number // SHARD_LINES
            n_others = (self._shard_index - block) % self._num_shards
            if n_others:
                lines.skip((block + n_others) * SHARD_LINES)
            line = next(iter(lines), None)
            if line is None:
                break
            pool.append(line)
            n_tokens += len(line.words)
            is_full = n_tokens >= _POOL_TOKENS
            if self._batch_size is not None and self._carried:
                is_full |= len(pool) >= SHARD_LINES
                is_full &= len(pool) % self._batch_size == 0
            else:
                is_full |= lines.number % SHARD_LINES == 0
            if is_full:
                yield pool
                pool, n_tokens = [], 0
        if pool:
            yield pool

    def _batches(self, pool: List[SentenceLine]) -> Iterator[List[int]]:
        """Yield the indices of the lines to embed at once."""
        if self._batch_size is not None and self._carried:
            yield from lazy_groups_of(range(len(pool)), self._batch_size)
            return
        lengths = [len(line.words) for line in pool]
        yield from batches_by_length(lengths, self._batch_tokens, self._batch_size)

    def _write(self, pool: List[SentenceLine], file: LayersFile, name: str) -> None:
        self._forget_words()
        arrays: List[Any] = [None] * len(pool)
        for batch in self._batches(pool):
            sentences = [pool[i].words for i in batch]
            for i, array in zip(batch, self._embedder.embed_batch(sentences, self._output_format)):
                arrays[i] = array
        for line, array in zip(pool, arrays):
            if not self._use_sentence_keys:
                file.add(str(line.number), array)
                if self._mappings:
                    file.add_mapping(line.sentence, str(line.number))
                continue
            place = f"{name}, line {line.number + 1}"
            key = _sentence_key(line.sentence, place)
            if not is_there_already(file, key, line.sentence, place, self._carried):
                file.add(key, array, line.sentence)


def batches_by_length(
    lengths: Sequence[int], batch_tokens: int, batch_size: Optional[int] = None
) -> Iterator[List[int]]:
    """
    Yield the indices of the sentences of each batch, given the number of words of each: sentences
    of similar lengths, with at most `batch_tokens` tokens, sentence boundaries counted, unless it
    is one sentence.
    """
    batch: List[int] = []
    n_tokens = 0
    # Long sentences first: if the memory is too small for them, this is known early.
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[i] + 2
        if batch and (n_tokens + length > batch_tokens or len(batch) == batch_size):
            yield batch
            batch, n_tokens = [], 0
        batch.append(i)
        n_tokens += length
    if batch:
        yield batch


def finished(path: str, settings: Dict[str, Any], lines: TextLines) -> Optional[Dict[str, Any]]:
    """
    Return the summary of a complete file of these settings, or `None`.

    # Raises

    `ConfigurationError`
        It is of another text than `lines`.
    """
    summary = complete_summary(path)
    if summary is None or not settings.items() <= summary.items():
        return None
    _check_text(lines, summary)
    if lines.read_line():
        raise ConfigurationError(
            f"{lines.name} is longer than the text of {path}, which has {summary['lines']:,} "
            f"lines. {_OTHER_TEXT}"
        )
    return summary


def _check_text(lines: TextLines, progress: Dict[str, Any]) -> None:
    n_lines = progress["lines"]
    with step_bar(f"comparing {os.path.basename(lines.name)}", n_lines, " lines") as update:
        while lines.number < n_lines:
            before = lines.number
            lines.skip(min(before + _COMPARED_LINES, n_lines))
            if lines.number == before:  # The text is shorter.
                break
            update(lines.number - before)
    if (lines.number, lines.checksum) != (progress["lines"], progress["checksum"]):
        raise ConfigurationError(
            f"{lines.name} is not the text that the run to resume has read: one of its first "
            f"{progress['lines']:,} lines has changed. {_OTHER_TEXT}"
        )


def _trim_memory() -> None:
    """
    Return free memory to the system: batches of many sizes leave holes in the C library's heap,
    which glibc keeps, hundreds of MB after some ten thousand sentences.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        pass  # another C library


_OTHER_KEYS = "so it cannot be a key; use line numbers (no `--use-sentence-keys`)"


def _sentence_key(sentence: str, place: str) -> str:
    """
    Return the key of a sentence. To HDF5, keys are paths, in which empty parts and `.` between
    slashes count for nothing. `place` names the sentence in the error if HDF5 has no such key.
    """
    reason = None
    parts = [part for part in sentence.split("/") if part not in ("", ".")]
    if not sentence:
        reason = "is blank"
    elif "\0" in sentence:
        reason = "contains a null character"
    elif any("\ud800" <= character <= "\udfff" for character in sentence):
        reason = "is not Unicode (it has half a surrogate pair)"
    elif not parts:
        reason = f"is {sentence!r}, HDF5's name of the root"
    if reason is not None:
        raise ConfigurationError(f"{place}: the sentence {reason}, {_OTHER_KEYS}")
    return "/".join(parts)


def is_there_already(file: LayersFile, key: str, sentence: str, place: str, carried: bool) -> bool:
    """
    Return whether the same sentence is in the file.

    # Raises

    `ConfigurationError`
        It has other layers there, or something else is in its place.
    """
    other = file.sentence_at(key)
    if other == sentence and not carried:
        return True
    if other == sentence:
        raise ConfigurationError(
            f"{place}: the sentence {sentence!r} occurs twice, with layers that differ since "
            f"states are carried, {_OTHER_KEYS}, or the initial state settled or zero"
        )
    if other is not None:
        raise ConfigurationError(
            f"{place}: to HDF5 the sentence {sentence!r} is the same key as {other!r} before, "
            f"{_OTHER_KEYS}"
        )
    if file.is_group(key):
        raise ConfigurationError(
            f"{place}: a sentence before begins with {sentence!r} and '/', which to HDF5 is a "
            f"folder, {_OTHER_KEYS}"
        )
    for folder in itertools.accumulate(key.split("/")[:-1], posixpath.join):
        if file.sentence_at(folder) is not None:
            raise ConfigurationError(
                f"{place}: to HDF5 the start of the sentence {sentence!r} up to the '/' is a "
                f"folder, but {folder!r} is a sentence before, {_OTHER_KEYS}"
            )
    return False
