"""
A word in its contexts: which of its occurrences in a text have vectors like that of a given one.
"""

import itertools
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Sequence

import numpy

from allennlp_elmo_plugin.bilm.characters import check_sentences
from allennlp_elmo_plugin.embedding.occurrences import (
    Place,
    check_word,
    comparable,
    sample_occurrences,
)

MAX_OCCURRENCES = 1000
"""Default number of occurrences that are compared, drawn at random if there are more."""

_N_GROUPS = 2

_SHOWN_COLUMNS = 34
"""How much of a sentence is shown on each side of the word."""

Array = Any  # numpy.ndarray, whose type parameters differ between the supported versions


class Occurrence(NamedTuple):
    """
    A word in a sentence. `str()` shows it in the middle of a line.

    # Parameters

    similarity : `float`
        To the query, from -1 to 1: the cosine of both vectors, less the mean of all.
    sentence : `List[str]`
        Of a sentence with more than 200 words, the 100 on each side of the word at most.
    position : `int`
        The place of the word in `sentence`, from 0.
    number : `int`, optional (default = `None`)
        The place of the sentence in the text, from 0; `None` for a query that isn't from the text.
    """

    similarity: float
    sentence: List[str]
    position: int
    number: Optional[int] = None

    def __str__(self) -> str:
        before = _start(self.sentence[: self.position][::-1])[::-1]
        after = _start(self.sentence[self.position + 1 :])
        word = self.sentence[self.position]
        return f"{' '.join(before):>{_SHOWN_COLUMNS}} [{word}] {' '.join(after)}".rstrip()


def _start(words: List[str]) -> List[str]:
    """Return the first words, as many as are shown."""
    ends = itertools.accumulate(len(word) + 1 for word in words)
    return [word for word, end in zip(words, ends) if end <= _SHOWN_COLUMNS + 1]


class Neighbours(NamedTuple):
    """
    An occurrence of a word, the query, and those that are most similar to it, in falling order.
    `str()` shows them as a table.
    """

    query: Occurrence
    nearest: List[Occurrence]

    def __str__(self) -> str:
        rows = [f"{each.similarity:7.2f}  {each}" for each in self.nearest]
        return "\n".join([f"  query  {self.query}", *rows])


def nearest(
    vectors_of: Callable[[Sequence[Place]], Array],
    word: str,
    sentences: Iterable[List[str]],
    queries: Optional[Iterable[List[str]]] = None,
    n_nearest: int = 5,
    max_occurrences: int = MAX_OCCURRENCES,
) -> List[Neighbours]:
    """Do what `ElmoEmbedder.nearest` describes with vectors of shape `(places, dim)`."""
    check_word(word)
    asked_sentences = check_sentences([] if queries is None else queries)
    for name, number in (("n_nearest", n_nearest), ("max_occurrences", max_occurrences)):
        least = _N_GROUPS if name == "max_occurrences" and not asked_sentences else 1
        if number < least:
            raise ValueError(f"{name} is {number}; it must be at least {least}")
    asked = [place for query in asked_sentences for place in _places_in_query(word, query)]
    found, _ = sample_occurrences(word, sentences, max_occurrences)
    if not asked and len(found) < _N_GROUPS:
        raise ValueError(
            f"the word {word!r} occurs once in the text (the same sentence again doesn't count), "
            "so there is nothing to compare it with; give more text, or a query"
        )
    places = [*asked, *found]
    vectors = comparable(vectors_of(places))  # (places, dim)
    n_asked = len(asked)
    chosen = list(range(n_asked)) or _of_each_group(vectors)
    results = []
    for index in chosen:
        query = places[index]
        similarities = vectors @ vectors[index]
        order = numpy.argsort(-similarities[n_asked:], kind="stable") + n_asked
        # Other occurrences in the same sentence are others, but the query itself isn't.
        near = [i for i in order.tolist() if places[i].key != query.key][:n_nearest]
        found_near = [Occurrence(float(similarities[i]), *places[i][:3]) for i in near]
        results.append(Neighbours(Occurrence(1.0, *query[:3]), found_near))
    return results


def _places_in_query(word: str, query: List[str]) -> List[Place]:
    places = [Place.of(query, i) for i, each in enumerate(query) if each == word]
    if not places:
        raise ValueError(
            f"the word {word!r} is not in the query {' '.join(query)!r}; words are compared as "
            "they are written"
        )
    return places


def _of_each_group(vectors: Array) -> List[int]:
    """
    Divide vectors of length 1, shape `(n, dim)`, into groups, and return the one nearest to the
    mean of each, those of the larger group first.
    """
    from sklearn.cluster import KMeans

    groups = KMeans(_N_GROUPS, n_init=10, random_state=0).fit(vectors)
    chosen = []
    for group in numpy.argsort(-numpy.bincount(groups.labels_), kind="stable"):
        members = numpy.flatnonzero(groups.labels_ == group)
        middle = vectors[members] @ groups.cluster_centers_[group]
        chosen.append(int(members[numpy.argmax(middle)]))
    return chosen
