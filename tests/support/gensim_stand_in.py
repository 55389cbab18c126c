"""A stand-in for gensim, where it isn't installed."""

import sys
import types
from collections import Counter
from typing import Any, List

import pytest


def stand_in_for_gensim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `from gensim.models import Word2Vec` work, in any case."""
    try:
        import gensim  # noqa: F401
    except ImportError:
        monkeypatch.setitem(sys.modules, "gensim", types.ModuleType("gensim"))
        models = types.ModuleType("gensim.models")
        models.Word2Vec = _Word2Vec  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "gensim.models", models)


class _Word2Vec:
    def __init__(self, sentences: Any, vector_size: int, min_count: int, **kwargs: Any) -> None:
        assert kwargs["workers"] == 1 and kwargs["seed"] == 1
        counts = Counter(word for _ in range(1) for sentence in sentences for word in sentence)
        words = [word for word, count in counts.most_common() if count >= min_count]
        self.wv = _KeyedVectors(words, [[0.5] * vector_size for _ in words])
        self.corpus_total_words = sum(counts.values())


class _KeyedVectors:
    def __init__(self, words: List[str], vectors: List[List[float]]) -> None:
        self.index_to_key, self.vectors = words, vectors

    def __len__(self) -> int:
        return len(self.vectors)
