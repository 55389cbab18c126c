"""What inference computes from parameters once and keeps: packed weights and word vectors."""

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch

from allennlp_elmo_plugin.bilm.model_call import copy_to, lasting_tensors

T = TypeVar("T")


class CachedValue(Generic[T]):
    """
    A value that is computed again when its parameters change: their storage, version or, unless
    they are frozen and on a GPU, a number of each row and column. After editing a few numbers
    through `.data`, or any frozen ones on a GPU, call `train()` or `eval()` of the `CachingModule`.
    Threads may share it. Copies and pickles are empty.
    """

    def __init__(self) -> None:
        self._kept: tuple[T, Any, list[torch.Tensor], list[torch.Tensor]] | None = None

    def get(self, parameters: Sequence[torch.Tensor], make: Callable[[], T], key: Any = None) -> T:
        """Return the result of `make`, which depends only on the parameters and on `key`."""
        # Reading a GPU's sample would wait for it. Trainable parameters need it, since `foreach`
        # optimizers don't count versions.
        is_compared = any(p.requires_grad or p.device.type == "cpu" for p in parameters)
        key = (key, is_compared, *map(_version, parameters))
        kept = self._kept  # once: another thread may replace it
        if kept is not None:
            kept_key, views, sample = kept[1:]
            if kept_key == key and (not is_compared or _are_equal(views, sample)):
                return kept[0]
        kept = self._kept = None  # before `make`: memory may not hold both values
        with lasting_tensors():
            # Views keep the storage alive, so no other parameter can get its address.
            views = list(map(_some_numbers, parameters))
            value = make()
            self._kept = value, key, views, [view.clone() for view in views]
        return value

    def __getstate__(self) -> dict[str, Any]:
        return {"_kept": None}


class CachingModule(torch.nn.Module):
    """A module whose `train()` and `eval()` drop its cached values."""

    def train(self, mode: bool = True) -> Self:
        for value in vars(self).values():
            if isinstance(value, CachedValue):
                value._kept = None
        return super().train(mode)

    def _replicate_for_data_parallel(self) -> Self:
        replica = super()._replicate_for_data_parallel()
        for name, value in vars(self).items():
            if isinstance(value, CachedValue):  # Each device has its own.
                setattr(replica, name, CachedValue())
        return replica


def _are_equal(views: list[torch.Tensor], sample: list[torch.Tensor]) -> bool:
    if any(view.device.type != "cpu" for view in views):
        return torch.equal(torch.cat(views), torch.cat(sample))  # waits once for a GPU
    # One by one, too small for torch to share them among threads that wait for each other.
    return all(map(torch.equal, views, sample))


def _version(parameter: torch.Tensor) -> tuple[int, int]:
    # Inference tensors have no versions.
    return parameter.data_ptr(), 0 if parameter.is_inference() else parameter._version


def _some_numbers(parameter: torch.Tensor) -> torch.Tensor:
    """Return a view that has the last number, and at least one of each row and each column."""
    values = parameter.detach().flatten()
    n_columns = max(1, parameter.shape[1:].numel())
    # At most n_columns, it misses no row. At most n_rows and coprime, it misses no column.
    stride = max(1, min(n_columns, values.numel() // n_columns))
    while math.gcd(stride, n_columns) > 1:
        stride -= 1
    return values[(values.numel() - 1) % stride :: stride]


class WordCache:
    """
    The vectors of at most `max_words` words, or of the last call's if there are more. A full cache
    forgets all words except those to `keep`. Threads may share it.
    """

    def __init__(self, max_words: int) -> None:
        self.max_words = max_words
        self._lock = threading.RLock()
        self._places: dict[bytes, int] = {}
        self.n_kept = 0
        # In the order of `_places`, with spare rows: (at least n_words, dim)
        self._vectors: torch.Tensor | None = None

    def keep(self) -> None:
        """Never forget the words that are now in the cache."""
        self.n_kept = len(self._places)

    def forget(self, n_kept: int | None = None) -> None:
        """Forget all words except the first `n_kept`, by default those of `keep`."""
        with self._lock:
            self.n_kept = self.n_kept if n_kept is None else n_kept
            self._places = dict(itertools.islice(self._places.items(), self.n_kept))

    def look_up(
        self, words: Sequence[bytes], encode: Callable[[list[bytes]], torch.Tensor]
    ) -> torch.Tensor:
        """Return the vectors of words, shape `(len(words), dim)`. `encode` computes new ones."""
        with self._lock, lasting_tensors():
            places = list(map(self._places.get, words))
            if None in places or self._vectors is None:
                new = self._missing(words)
                if len(self._places) + len(new) > self.max_words:
                    self.forget()
                    new = self._missing(words)
                self._add(new, encode(new))
                places = list(map(self._places.get, words))
            assert self._vectors is not None
            index = torch.from_numpy(np.array(places, dtype=np.int64))
            return self._vectors.index_select(0, copy_to(index, self._vectors.device))

    def _missing(self, words: Sequence[bytes]) -> list[bytes]:
        return [word for word in dict.fromkeys(words) if word not in self._places]

    def _add(self, words: list[bytes], vectors: torch.Tensor) -> None:
        start, end = len(self._places), len(self._places) + len(words)
        if self._vectors is None or end > self._vectors.size(0):
            larger = vectors.new_empty(max(1024, 2 * end), vectors.size(1))
            if self._vectors is not None:
                larger[:start] = self._vectors[:start]
            self._vectors = larger
        self._vectors[start:end] = vectors
        self._places.update(zip(words, range(start, end)))
