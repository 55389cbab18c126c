"""Batches of windows of text, epoch after epoch, which can continue where they were."""

import hashlib
import itertools
import random
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch

from allennlp_elmo_plugin.arguments import check_at_least, check_types
from allennlp_elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN
from allennlp_elmo_plugin.text.checks import check_text
from allennlp_elmo_plugin.text.corpus import PathOrPaths, digests, find_files, name_of, read_text
from allennlp_elmo_plugin.text.windows import Window, WindowStream
from allennlp_elmo_plugin.text.word_ids import WordIds

Batch = dict[str, Any]  # of tensors; AllenNLP's type is another

_COUNTED_BYTES = 32 * 2**20
_N_READ_AHEAD = 8


@dataclass(eq=False)
class TextBatches:
    """
    The batches of a text for truncated back-propagation through time, as bilm-tf makes them.
    Iterating gives the batches of one epoch, the arguments of `LanguageModel.forward`; the next
    iteration gives the next epoch. `state_dict` is the place after the last batch.

    # Parameters

    paths : `str` or `Iterable[str]`
        The text, one tokenised sentence a line, its words separated by ASCII white space: files,
        folders or globs, plain or gzip.
    words : `Sequence[str]` or `Mapping[str, int]`, optional (default = `None`)
        The vocabulary, in the order of its ids or with them. Without it, no batches can be made.
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
    seed : `int`, optional (default = `0`)
        Of the orders of sentences, which depend on it and on the number of the epoch.
    encoding_errors : `str`, optional (default = `"strict"`)
        For bytes that are not UTF-8: "strict" (an error) or "replace" (by U+FFFD).
    contiguous : `bool`, optional (default = `False`)
        `False`: each row takes the next unread line when its own ends, as in bilm-tf, so that
        neighbouring lines stand in different rows. `True`, for texts that fit in memory: each row
        reads a part of the text from line to line, and the backward direction the whole text from
        its end. With one row, each word of an evaluation has all text before (or after) it.
    max_rows : `int`, optional (default = `None`)
        Stop a pass after this many rows, those of whole batches.
    batches_per_epoch : `int`, optional (default = `None`)
        End an epoch after this many batches instead of a pass over the text; the next epoch
        continues there.
    read_ahead : `bool`, optional (default = `False`)
        Read a few batches ahead, in a thread; always done for a GPU.
    device : `torch.device` or `str`, optional (default = `None`)
        Where to put the batches.
    rank, world_size : `int`, optional
        In distributed training each process reads `batch_size` rows of one common set.
    """

    paths: PathOrPaths
    words: Any = None
    batch_size: int = 128
    num_steps: int = 20
    max_characters_per_token: int | None = MAX_CHARACTERS_PER_TOKEN
    bidirectional: bool = True
    shuffle_sentences: bool = False
    drop_last: bool = True
    seed: int = 0
    encoding_errors: str = "strict"
    contiguous: bool = False
    _: KW_ONLY
    max_rows: int | None = None
    batches_per_epoch: int | None = None
    read_ahead: bool = False
    device: torch.device | str | None = None
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        check_types(TextBatches, vars(self))
        sizes = ("batch_size", "num_steps", "batches_per_epoch")
        check_at_least(1, **{name: getattr(self, name) for name in sizes})
        if self.encoding_errors not in ("strict", "replace"):
            raise ValueError(f"encoding_errors is {self.encoding_errors!r}; use strict or replace")
        self.files = find_files(self.paths)
        self.name = name_of(self.files)
        if self.words is not None and not isinstance(self.words, Mapping):
            self.words = {word: index for index, word in enumerate(self.words)}
        self._n_rows = self.batch_size * self.world_size  # of all processes together
        check_at_least(self._n_rows, max_rows=self.max_rows)
        first = self.batch_size * self.rank
        self._rows = range(first, first + self.batch_size)
        # The numbers of the pass over the text, of windows in it so far, and of batches in the
        # epoch so far: now, and where the next iteration starts.
        self._position = self._start = (0, 0, 0)
        # The pass that the next epoch of `batches_per_epoch` continues.
        self._pass: Iterator[Batch] | None = None
        self._n_batches = self.batches_per_epoch
        self._digests: dict[str, str] | None = None

    def __len__(self) -> int:
        """Return the number of batches in the last epoch, before the first one an estimate."""
        if self._n_batches is None:
            self._n_batches = self.count()
        return max(0, self._n_batches - self._start[2])

    def __iter__(self) -> Iterator[Batch]:
        limit = self.batches_per_epoch
        epoch, n_windows, n_given = self._start
        while limit is None or n_given < limit:
            batches = self._pass or self._read(epoch, n_windows)
            self._pass = None
            for batch in batches:
                n_windows += 1
                n_given += 1
                self._position = epoch, n_windows, n_given
                yield batch
                if n_given == limit:
                    self._pass = batches
                    break
            else:
                epoch, n_windows = epoch + 1, 0
                if limit is None:
                    self._n_batches = n_given
                    break
        self._start = self._position = epoch, n_windows, 0

    def _read(self, epoch: int, n_windows: int) -> Iterator[Batch]:
        """Yield the batches of a pass after some windows, on their device."""
        device, batches = self.device, self.batches(epoch, n_windows)
        if device is None:
            return _read_ahead(batches) if self.read_ahead else batches
        is_gpu = torch.device(device).type == "cuda"

        def move(tensor: torch.Tensor) -> torch.Tensor:
            # From pinned memory, copies run while the GPU computes.
            return (tensor.pin_memory() if is_gpu else tensor).to(device, non_blocking=True)

        moved = ({name: move(tensor) for name, tensor in batch.items()} for batch in batches)
        return _read_ahead(moved) if self.read_ahead or is_gpu else moved

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the batch that was yielded last, and digests of what is read."""
        if self._digests is None:
            self._digests = self._compute_digests()
        names = ("epoch", "n_windows", "n_given")
        return dict(zip(names, self._position), digest=self._digests)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the place in `state`. Raise a `ValueError` if text or words changed."""
        now = self._compute_digests()
        changed = sorted({name for name, _ in state["digest"].items() ^ now.items()})
        if changed:
            raise ValueError(
                f"The text isn't that of the checkpoint: {', '.join(changed)} changed. A recovered "
                "run continues at its place in the text: put the files back as they were, or start "
                "a new run in another folder"
            )
        self._digests = now
        self._pass = None
        self._start = self._position = state["epoch"], state["n_windows"], state["n_given"]

    def _compute_digests(self) -> dict[str, str]:
        words = "\n".join(self.words or ()).encode("utf-8", "surrogatepass")
        return {**digests(self.files), "the vocabulary": hashlib.sha256(words).hexdigest()}

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[Batch]:
        """
        Yield the batches of a pass over the text after the first `skip`, which are read without
        making tensors. Tensors are int64 but for the int16 `character_ids`.
        """
        directions = ("forward", "backward") if self.bidirectional else ("forward",)
        word_ids = WordIds(self.max_characters_per_token, self.words)
        if not (epoch or skip or self._rows.start):
            texts = read_text(self.files, self.encoding_errors)
            check_text(self.name, texts, self.max_characters_per_token, self.words)
        streams = []
        # Each direction has an order of its own of shuffled sentences.
        for together in zip(directions) if self.shuffle_sentences else [directions]:
            seed = f"{self.seed} {epoch} {together[0]}"
            shuffle = random.Random(seed) if self.shuffle_sentences else None
            texts = read_text(self.files, self.encoding_errors, shuffle)
            streams.append(self._stream(texts, word_ids, together))
        of_streams = [stream.fill_rows() for stream in streams]
        if self.drop_last:
            filled: Iterator[Any] = zip(*of_streams)
        else:
            # One direction may end earlier.
            padding = [-1, -1, self.batch_size * self.num_steps]
            filled = itertools.zip_longest(*of_streams, fillvalue=padding)
        if self.max_rows is not None:
            filled = itertools.islice(filled, self.max_rows // self._n_rows)
        number = -1
        for number, runs in enumerate(filled):
            if number >= skip:
                windows = map(WindowStream.windows, streams, runs)
                yield self._batch(number, word_ids, list(itertools.chain(*windows)))
        if number < 0:
            raise ValueError(
                f"{self.name} is smaller than one batch: its words don't fill {self._n_rows} rows "
                f"of {self.num_steps}; lower batch_size or num_steps, or set drop_last false to "
                "pad what is missing"
            )

    def count(self) -> int:
        """
        Return the number of batches in a pass. It is exact for a text of up to 32 MB that is read
        in order, and otherwise an estimate from its start.
        """
        n_read: list[int] = []
        texts = read_text(self.files, "replace", update=n_read.append)
        start = itertools.takewhile(lambda text: sum(n_read) <= _COUNTED_BYTES, texts)
        n_batches = sum(1 for _ in self._stream(start, WordIds()).fill_rows())
        n_bytes = sum(file.stat().st_size for file in self.files)
        n_batches = n_batches * n_bytes // max(1, sum(n_read))  # an empty gzip file has none
        if self.max_rows is not None:
            n_batches = min(n_batches, self.max_rows // self._n_rows)
        return n_batches

    def _stream(
        self, texts: Iterator[bytes], word_ids: WordIds, directions: Sequence[str] = ("forward",)
    ) -> WindowStream:
        return WindowStream(
            texts,
            self._n_rows,
            self.num_steps,
            word_ids,
            directions=directions,
            drop_last=self.drop_last,
            contiguous=self.contiguous,
            returned=self._rows,
        )

    def _batch(self, number: int, word_ids: WordIds, windows: list[Window]) -> Batch:
        inputs = np.stack([window.inputs for window in windows])  # (n_directions, rows, num_steps)
        batch: Batch = {"window": torch.full((self.batch_size,), number)}
        if self.max_characters_per_token is None:
            tokens = word_ids.vocabulary_ids(inputs).clamp(min=0)
        else:
            words, places = np.unique(inputs, return_inverse=True)
            tokens = torch.from_numpy(places.reshape(inputs.shape))
            batch["character_ids"] = word_ids.character_ids(words)
        for suffix, ids, window in zip(("", "_reverse"), tokens, windows):
            batch[f"tokens{suffix}"] = ids
            batch[f"targets{suffix}"] = word_ids.vocabulary_ids(window.targets)
        return batch


def _read_ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Read batches in a thread, a few before they are needed."""
    thread = ThreadPoolExecutor(1)
    number = thread.submit(threading.get_ident).result()
    read = deque(thread.submit(next, batches, None) for _ in range(_N_READ_AHEAD))
    try:
        while (batch := read.popleft().result()) is not None:
            read.append(thread.submit(next, batches, None))
            yield batch
    finally:
        # Python may free this generator in that thread, which can't wait for itself.
        thread.shutdown(wait=threading.get_ident() != number, cancel_futures=True)
