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


class _Table:
    """
    Words with their vectors. Words are only added, so that a thread that has found a word in a
    table finds its vector there, whatever other threads do.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.places: Dict[bytes, int] = {}
        self.n_staying = 0
        # In the order of the words, with space for more: (at least len(places), dim)
        self.vectors: Optional[torch.Tensor] = None

    def staying(self) -> "_Table":
        """
        Return a new table of the words that stay.
        """
        table = _Table()
        n_staying = table.n_staying = self.n_staying
        table.places = dict(itertools.islice(self.places.items(), n_staying))
        if n_staying and self.vectors is not None:
            table.vectors = self.vectors[:n_staying].clone()
        return table

    def add(self, words: Sequence[bytes], vectors: torch.Tensor) -> None:
        """
        Add words with their vectors, shape `(len(words), dim)`, except words that another thread
        has added by now.
        """
        with self._lock, lasting_tensors():
            new = [i for i, word in enumerate(words) if word not in self.places]
            if len(new) < len(words):
                vectors = vectors[torch.tensor(new, dtype=torch.long, device=vectors.device)]
            start, end = len(self.places), len(self.places) + len(new)
            if self.vectors is None or end > self.vectors.size(0):
                larger = vectors.new_empty(max(_FEW_ROWS, 2 * end), vectors.size(1))
                if self.vectors is not None:
                    larger[:start] = self.vectors[:start]
                self.vectors = larger
            self.vectors[start:end] = vectors
            # Last, when the vectors are there.
            self.places.update(zip((words[i] for i in new), range(start, end)))


class WordCache:
    """
    Keeps the vectors of words from batch to batch, of at most `max_words` words besides those of
    the last call. When there are too many, it forgets all that were not told to `stay`. Frequent
    words are soon back.
    """

    def __init__(self, max_words: int) -> None:
        self.max_words = max_words
        self._table = _Table()

    def __len__(self) -> int:
        return len(self._table.places)

    def stay(self) -> None:
        """
        Let the words that are here now stay for good.
        """
        self._table.n_staying = len(self)

    def forget(self) -> None:
        """
        Forget all words but those that stay.
        """
        if len(self) > self._table.n_staying:
            self._table = self._table.staying()

    def look_up(
        self, words: Sequence[bytes], encode: Callable[[List[bytes]], torch.Tensor]
    ) -> torch.Tensor:
        """
        Return the vectors of words in any order, shape `(len(words), dim)`. `encode` makes those of
        new words, shape `(n_new, dim)`.
        """
        if not words:
            return encode([])
        table = self._table
        places = list(map(table.places.get, words))
        if None in places:
            distinct = dict.fromkeys(words)
            new = [word for word in distinct if word not in table.places]
            if len(table.places) + len(new) > self.max_words:
                self._table = table = table.staying()
                new = [word for word in distinct if word not in table.places]
            table.add(new, encode(new))
            places = list(map(table.places.get, words))
        vectors = table.vectors
        assert vectors is not None
        index = torch.tensor(places, device="cpu").to(vectors.device)
        return vectors.index_select(0, index)  # (len(words), dim)
