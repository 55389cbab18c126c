"""
Vectors of words, kept from batch to batch.

Rule: the vectors belong to one state of the encoder, whose `CachedValue` the cache is. Any thread
may use it.
"""

import itertools
import threading
from typing import Callable, Dict, List, Optional, Sequence

import torch

from allennlp_elmo_plugin.bilm.kernels.model_call import lasting_tensors

_FEW_ROWS = 1024


class WordCache:
    """
    Keeps the vectors of words from batch to batch, of at most `max_words` words besides those of
    the last call. When there are too many, it forgets all that were not told to `stay`. Frequent
    words are soon back.
    """

    def __init__(self, max_words: int) -> None:
        self.max_words = max_words
        self._lock = threading.Lock()
        self._places: Dict[bytes, int] = {}
        self._n_staying = 0
        # In the order of the words, with space for more: (at least len(self), dim)
        self._vectors: Optional[torch.Tensor] = None

    def __len__(self) -> int:
        return len(self._places)

    def stay(self) -> None:
        """
        Let the words that are here now stay for good.
        """
        with self._lock:
            self._n_staying = len(self)

    def forget(self) -> None:
        """
        Forget all words but those that stay.
        """
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._places = dict(itertools.islice(self._places.items(), self._n_staying))

    def look_up(
        self, words: Sequence[bytes], encode: Callable[[List[bytes]], torch.Tensor]
    ) -> torch.Tensor:
        """
        Return the vectors of words in any order, shape `(len(words), dim)`. `encode` makes those of
        new words, shape `(n_new, dim)`.
        """
        with self._lock, lasting_tensors():
            new = [word for word in dict.fromkeys(words) if word not in self._places]
            if len(self) + len(new) > self.max_words:
                self._forget()
                new = [word for word in dict.fromkeys(words) if word not in self._places]
            if new or self._vectors is None:
                self._add(new, encode(new))
            assert self._vectors is not None
            places = [self._places[word] for word in words]
            index = torch.tensor(places, dtype=torch.long, device="cpu").to(self._vectors.device)
            return self._vectors.index_select(0, index)

    def _add(self, words: List[bytes], vectors: torch.Tensor) -> None:
        start, end = len(self), len(self) + len(words)
        if self._vectors is None or end > self._vectors.size(0):
            larger = vectors.new_empty(max(_FEW_ROWS, 2 * end), vectors.size(1))
            if self._vectors is not None:
                larger[:start] = self._vectors[:start]
            self._vectors = larger
        self._vectors[start:end] = vectors
        self._places.update(zip(words, range(start, end)))
