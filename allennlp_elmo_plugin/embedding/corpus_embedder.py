"""
A text file to a file of layers: what `allennlp elmo` and `ElmoEmbedder.embed_file` share.
"""

import os
import time
import zlib
from typing import Any, Dict, Iterable, Iterator, List, Optional, Protocol, Sequence

import numpy

from allennlp_elmo_plugin.data.text_check import check_text
from allennlp_elmo_plugin.embedding.layers_file import (
    COMPRESSIONS,
    DTYPES,
    check_mapping,
    open_layers_file,
    read_summary,
    sentence_key,
)
from allennlp_elmo_plugin.embedding.parts import Part, PartsFolder
from allennlp_elmo_plugin.files.text_lines import SentenceLine, TextLines
from allennlp_elmo_plugin.files.whole import is_special
from allennlp_elmo_plugin.progress import progress_bar

PART_WORDS = 2**15
"""A part ends with the line that has this word; the end of a line counts as one."""

_CARRIED_BATCH_SIZE = 64
_OTHER_TEXT = "Give the same text, or start again (`--force` without `--resume`)"
_REPLACE = "ask for it to be replaced (`--force`, or `overwrite=True` in Python)"


class Embedder(Protocol):
    """What embeds batches: an `ElmoEmbedder`."""

    elmo_bilm: Any

    def embed_batch(self, batch: List[List[str]], output_format: str = "all") -> List[Any]:
        """See `ElmoEmbedder.embed_batch`."""

    def view_batch(self, batch: List[List[str]], output_format: str = "all") -> List[Any]:
        """See `ElmoEmbedder.view_batch`."""


class CorpusEmbedder:
    """
    Embeds the lines of a text into an HDF5 file, in memory that does not grow with the text.

    The text is divided into parts of 32,768 words. Each is embedded and written to a folder, and
    at the end they are joined. A part that is in the folder is not embedded again: this is how a
    run resumes, and how processes share a text.

    Where the language model's states are carried from batch to batch, batches are those of AllenNLP
    0.9: `batch_size` lines in their order. Otherwise a sentence's layers don't depend on its
    neighbours, and batches are made of the part's sentences of similar lengths. A part does not
    depend on another, except by carried states, which are saved with it. So the numbers are the
    same to the last bit whoever embeds it (on the same machine, with enough memory).

    # Parameters

    embedder : `ElmoEmbedder`
    output_format, batch_size, batch_tokens, forget_sentences, use_sentence_keys,
    include_sentence_indices, dtype, compression, num_shards, shard_index
        See `ElmoEmbedder.embed_file`.

    # Raises

    ValueError
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
        self._is_carried = embedder.elmo_bilm.initial_state == "carried"
        if batch_size is None and self._is_carried:
            batch_size = _CARRIED_BATCH_SIZE
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"the batch size is {batch_size}; it must be at least 1")
        if batch_tokens < 1:
            raise ValueError(f"a batch has {batch_tokens} tokens; it must be at least 1")
        if include_sentence_indices and (forget_sentences or use_sentence_keys):
            raise ValueError(
                "sentence indices can be included only when sentences are not forgotten and not "
                "keys themselves; leave out one of the options"
            )
        if dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype!r}; it must be one of {list(DTYPES)}")
        if compression is not None and compression not in COMPRESSIONS:
            raise ValueError(
                f"compression is {compression!r}; it must be one of {list(COMPRESSIONS)}, or none"
            )
        if num_shards < 1:
            raise ValueError(f"there are {num_shards} shards; there must be at least 1")
        if not 0 <= shard_index < num_shards:
            raise ValueError(
                f"there is no shard {shard_index} of {num_shards}; they are numbered from 0 to "
                f"{num_shards - 1}"
            )
        if num_shards > 1 and self._is_carried:
            raise ValueError(
                "carried states go through the whole text, so it can't be divided into shards; "
                'choose the initial state "settled" or "zero"'
            )
        self._embedder = embedder
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
            See `ElmoEmbedder.embed_file`.

        # Returns

        `Dict[str, Any]`
            The settings; `lines`, `sentences` and `tokens` of the text and its `checksum`; and
            `missing_parts`, those that other shards have not written yet. If there are none, the
            output is complete.
        """
        path = os.path.expanduser(os.fspath(path))
        resume = resume or self._num_shards > 1
        check_output(path, overwrite or resume, resume)
        if self._mappings and lines.size and not lines.is_gzip:
            check_mapping(lines.size)
        if resume and os.path.exists(path):
            summary = read_summary(path)
            if summary is not None and self._settings().items() <= summary.items():
                return self._check_complete(lines, path, summary)
            check_output(path, overwrite, resume)
        summary = self.write_parts(lines, path, anew=overwrite and not resume)
        if not summary["missing_parts"]:
            folder = PartsFolder(parts_folder(path))
            with folder.lock("join", wait=True):
                # Unless another shard has done it in the meantime.
                if folder.has_parts() or not summary["sentences"]:
                    self._join(summary, folder, path, lines.name)
                folder.remove()
        return summary

    def write_parts(self, lines: TextLines, path: str, anew: bool = False) -> Dict[str, Any]:
        """
        Write the parts of this shard that are missing, or all of them, for the output `path`.
        Return what `embed` does.
        """
        folder = PartsFolder(parts_folder(path))
        with folder.lock(f"shard-{self._shard_index}"):
            folder.start(self._part_settings(), anew)
            try:
                return self._embed_parts(lines, folder)
            finally:
                if self._num_shards == 1 and not folder.has_parts():
                    folder.remove()

    def _part_settings(self) -> Dict[str, Any]:
        """Return what the layers depend on, except the text."""
        return {
            **self._embedder.elmo_bilm.fingerprint(),
            "layers": self._output_format,
            "dtype": self._dtype,
            "batch_size": self._batch_size,
            "batch_tokens": None if self._is_carried else self._batch_tokens,
        }

    def _settings(self) -> Dict[str, Any]:
        """Return what the content of the file depends on, except the text."""
        return {
            **self._part_settings(),
            "compression": self._compression,
            "keys": "sentences" if self._use_sentence_keys else "line numbers",
            "mappings": self._mappings,
        }

    def _check_complete(
        self, lines: TextLines, path: str, summary: Dict[str, Any]
    ) -> Dict[str, Any]:
        """Return the summary of an output that is complete already, if it is of this text."""
        text = self._summary()
        for part in self._divide(lines):
            _count(text, part)
        if text != {key: summary.get(key) for key in text}:
            raise ValueError(
                f"{lines.name} is not the text of {path}, which has {summary['lines']:,} lines and "
                f"another checksum. {_OTHER_TEXT}"
            )
        PartsFolder(parts_folder(path)).remove()  # if the process was killed before it did
        return summary

    def _summary(self) -> Dict[str, Any]:
        totals = dict.fromkeys(("lines", "sentences", "tokens", "checksum", "missing_parts"), 0)
        return {**self._settings(), **totals}

    def _embed_parts(self, lines: TextLines, folder: PartsFolder) -> Dict[str, Any]:
        """Embed the parts of this shard that are not in the folder."""
        bilm = self._embedder.elmo_bilm
        if bilm.initial_state == "settled":
            # Before there are words in whose company they would be rounded differently.
            bilm.token_layer.forget_words()
            bilm.settled_state()
        summary = self._summary()
        with progress_bar(total=lines.size, unit="B", unit_scale=True, desc="embedding") as bar:
            n_embedded, start = 0, time.monotonic()
            for number, part in enumerate(self._divide(lines)):
                text = _count(summary, part)
                if folder.has(number):
                    self._check_part(folder, number, part, lines.name)
                elif number % self._num_shards != self._shard_index:
                    summary["missing_parts"] += 1
                else:
                    if not n_embedded:
                        check_text(lines.name, [text], bilm.max_characters)
                    folder.write(number, self._embed_part(part, lines.name))
                    n_embedded += sum(len(line.words) for line in part)
                    rate = n_embedded / (time.monotonic() - start)
                    bar.set_postfix_str(
                        f"{summary['sentences']:,} sentences, {rate:,.0f} words/s", refresh=False
                    )
                bar.update((lines.position if lines.size else lines.offset) - bar.n)
        return summary

    def _divide(self, lines: TextLines) -> Iterator[List[SentenceLine]]:
        """Yield the lines of each part."""
        part: List[SentenceLine] = []
        n_words = 0
        batch_size = self._batch_size if self._is_carried and self._batch_size else 1
        for line in lines:
            part.append(line)
            n_words += len(line.words) + 1
            if n_words >= PART_WORDS and len(part) % batch_size == 0:
                yield part
                part, n_words = [], 0
        if part:
            yield part

    def _check_part(
        self, folder: PartsFolder, number: int, lines: List[SentenceLine], name: str
    ) -> None:
        """Check that a part is of these lines, and go on from the states that it left."""
        part = folder.read(number, with_layers=False)
        if part.sentences != [line.sentence for line in lines]:
            raise ValueError(
                f"{name} is not the text that the run to resume has read: one of lines "
                f"{lines[0].number + 1} to {lines[-1].number + 1} has changed. {_OTHER_TEXT}"
            )
        if part.states is not None:
            self._embedder.elmo_bilm.lstm._states = part.states

    def _embed_part(self, lines: List[SentenceLine], name: str) -> Part:
        bilm = self._embedder.elmo_bilm
        bilm.token_layer.forget_words()
        if self._use_sentence_keys:
            for line in lines:
                sentence_key(line.sentence, f"{name}, line {line.number + 1}")
        lengths = numpy.array([len(line.words) for line in lines])
        ends = lengths.cumsum() * self._vector_size()
        layers = numpy.empty(ends[-1], self._dtype)
        for batch in self._batches(lengths.tolist()):
            sentences = [lines[i].words for i in batch]
            for i, array in zip(batch, self._embedder.view_batch(sentences, self._output_format)):
                with numpy.errstate(over="ignore"):
                    layers[ends[i] - array.size : ends[i]] = array.reshape(-1)
        if self._dtype == "float16" and not numpy.isfinite(layers).all():
            place = numpy.searchsorted(ends, numpy.isfinite(layers).argmin(), side="right")
            raise ValueError(
                f"{name}, line {lines[place].number + 1}: its layers have numbers beyond those of "
                "float16 (65,504); write float32 (`--dtype`)"
            )
        states = bilm.lstm._states if self._is_carried else None
        return Part([line.sentence for line in lines], lengths, layers, states)

    def _batches(self, lengths: List[int]) -> Iterator[Sequence[int]]:
        """Yield the indices of the lines to embed at once."""
        if not self._is_carried or self._batch_size is None:
            return batches_by_length(lengths, self._batch_tokens, self._batch_size)
        size, rows = self._batch_size, range(len(lengths))
        return (rows[i : i + size] for i in rows[::size])

    def _vector_size(self) -> int:
        """Return how many numbers are written of a word."""
        bilm = self._embedder.elmo_bilm
        return bilm.get_output_dim() * (bilm.num_layers if self._output_format == "all" else 1)

    def _join(self, summary: Dict[str, Any], folder: PartsFolder, path: str, name: str) -> None:
        """Write the output from all parts."""
        mapping: Dict[str, str] = {}
        shape = [-1, self._embedder.elmo_bilm.get_output_dim()]
        if self._output_format == "all":
            shape.insert(0, self._embedder.elmo_bilm.num_layers)
        number = checksum = 0
        with (
            open_layers_file(path, self._compression) as file,
            progress_bar(
                total=summary["sentences"], unit=" sentences", unit_scale=True, desc="joining"
            ) as bar,
        ):
            for part in folder:
                checksum = zlib.crc32(_text(part.sentences), checksum)
                start = 0
                for sentence, length in zip(part.sentences, part.lengths):
                    end = start + length * self._vector_size()
                    layers = part.layers[start:end].reshape([*shape[:-2], length, shape[-1]])
                    if self._use_sentence_keys:
                        place = f"{name}, line {number + 1}"
                        file.add_sentence(sentence, layers, place, self._is_carried)
                    else:
                        file.add(str(number), layers)
                    if self._mappings:
                        mapping[sentence] = str(number)
                    start, number = end, number + 1
                bar.update(len(part.sentences))
            if (number, checksum) != (summary["sentences"], summary["checksum"]):
                raise ValueError(f"the parts of {path} are not those of {name}. {_OTHER_TEXT}")
            if self._mappings:
                file.write_mapping(mapping, self._mappings)
            file.write_summary(summary)


def batches_by_length(
    lengths: Sequence[int], batch_tokens: int, batch_size: Optional[int] = None
) -> Iterator[Sequence[int]]:
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


def parts_folder(path: str) -> str:
    """Return the folder of the parts of an output that is not complete."""
    return f"{path}.parts"


def can_resume(path: str) -> bool:
    """Return whether there are parts of an output."""
    return PartsFolder(parts_folder(os.path.expanduser(path))).has_parts()


def check_output(path: str, overwrite: bool = False, resume: bool = False) -> None:
    """
    Check what can be checked before the work: that the file can be written.

    # Raises

    ValueError
        The file or parts of it exist and may not be replaced; the path is a folder, a device or
        a pipe; or its folder is missing or read-only.
    """
    path = os.path.expanduser(path)
    if not os.path.basename(path):
        raise ValueError(f"cannot write {path!r}: it names no file, give a file name")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ValueError(f"cannot write {path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"cannot write {path}: nothing can be written to {folder}")
    if os.path.isdir(path):
        raise ValueError(f"cannot write {path}: it is a folder, give a file name")
    if is_special(path):
        raise ValueError(f"cannot write {path}: it is a device or a pipe, give a file name")
    if os.path.lexists(path) and not overwrite:
        raise ValueError(f"{path} exists already; remove it, choose another name, or {_REPLACE}")
    for left in (f"{path}.partial", f"{path}.shards"):
        if os.path.exists(left):
            raise ValueError(
                f"{left} is of a run of an earlier version, which this one can't continue; remove "
                "it, or choose another output"
            )
    if not (overwrite or resume) and can_resume(path):
        raise ValueError(
            f"{parts_folder(path)} is there, of a run that did not finish or is still running; "
            f"continue it (`--resume`, or `resume=True` in Python), or {_REPLACE}"
        )


def _text(sentences: Iterable[str]) -> bytes:
    return "".join(f"{sentence}\n" for sentence in sentences).encode("utf-8", "surrogatepass")


def _count(summary: Dict[str, Any], part: List[SentenceLine]) -> bytes:
    """Add a part of the text to its totals, and return it."""
    summary["lines"] += len(part)
    summary["sentences"] += len(part)
    summary["tokens"] += sum(len(line.words) for line in part)
    text = _text(line.sentence for line in part)
    summary["checksum"] = zlib.crc32(text, summary["checksum"])
    return text
