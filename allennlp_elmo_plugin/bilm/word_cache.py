import itertools
from typing import Callable, Dict, Hashable, List, Optional, Sequence

import torch

_FEW_ROWS = 1024


class WordCache:
    """
    Vectors of words, kept from batch to batch. When there are too many, all are forgotten that were
    not asked to stay, and the frequent ones are soon back.

    # Parameters

    max_words : `int`
        How many to keep at most, beside those of the last call.
    """

    def __init__(self, max_words: int) -> None:
        self.max_words = max_words
        self._places: Dict[Hashable, int] = {}
        self._n_staying = 0
        # In the order of the words, with room for more: (at least len(self), dim)
        self._vectors: Optional[torch.Tensor] = None

    def __len__(self) -> int:
        return len(self._places)

    def stay(self) -> None:
        """
        Lets the words that are here now stay for good.
        """
        self._n_staying = len(self)

    def forget(self) -> None:
        """
        Forgets all words but those that stay.
        """
        self._places = dict(itertools.islice(self._places.items(), self._n_staying))

    def look_up(
        self, words: Sequence[Hashable], encode: Callable[[List[int]], torch.Tensor]
    ) -> torch.Tensor:
        """
        # Parameters

        words : `Sequence[Hashable]`
            What tells the words apart: themselves, or their character ids. Any words in any order.
        encode : `Callable[[List[int]], torch.Tensor]`
            Makes the vectors of new words, shape `(n_new, dim)`, from their places in `words`.

        # Returns

        `torch.Tensor`
            Shape `(len(words), dim)`.
        """
        if not words:
            return encode([])
        places = list(map(self._places.get, words))
        if None in places:
            first_use = {word: i for i, word in reversed(list(enumerate(words)))}
            new = {word: i for word, i in first_use.items() if word not in self._places}
            if len(self) + len(new) > self.max_words:
                self.forget()
                new = {word: i for word, i in first_use.items() if word not in self._places}
            self._add(list(new), encode(list(new.values())))
            places = list(map(self._places.get, words))
        assert self._vectors is not None
        return self._vectors.index_select(0, torch.tensor(places))  # (len(words), dim)

    def _add(self, words: List[Hashable], vectors: torch.Tensor) -> None:
        start, end = len(self), len(self) + len(words)
        if self._vectors is None or end > self._vectors.size(0):
            larger = vectors.new_empty(max(_FEW_ROWS, 2 * end), vectors.size(1))
            if self._vectors is not None:
                larger[:start] = self._vectors[:start]
            self._vectors = larger
        self._vectors[start:end] = vectors
        self._places.update(zip(words, range(start, end)))
