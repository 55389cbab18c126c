"""
A word in its contexts: which of its occurrences in a text have vectors like that of a given one.
"""

import random
from collections import Counter
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.embedding.corpus_embedder import Embedder, batches_by_length
from allennlp_elmo_plugin.files.text_lines import split_words
from allennlp_elmo_plugin.modules.elmo import check_sentences

MAX_OCCURRENCES = 1000
"""Default number of occurrences that are compared, drawn at random if there are more."""

_N_GROUPS = 2
_N_ZEROS = 5
"""
Zero vectors that are added to the occurrences for their mean: of few occurrences, the mean itself
says more about them than about the word.
"""

_BATCH_TOKENS = 4096
_MAX_SENTENCE = 200
"""Of longer sentences, half as many words on each side of the word are used."""

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
    shown = 0
    length = -1
    for word in words:
        length += 1 + len(word)
        if length > _SHOWN_COLUMNS:
            break
        shown += 1
    return words[:shown]


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


class _Place(NamedTuple):
    """An occurrence whose vector is not known yet."""

    sentence: List[str]
    position: int
    number: Optional[int] = None

    @classmethod
    def of(cls, sentence: List[str], position: int, number: Optional[int] = None) -> "_Place":
        start = 0
        if len(sentence) > _MAX_SENTENCE:
            start = max(0, position - _MAX_SENTENCE // 2)
            sentence = sentence[start : position + 1 + _MAX_SENTENCE // 2]
        return cls(sentence, position - start, number)

    @property
    def key(self) -> Tuple[int, Tuple[str, ...]]:
        return self.position, tuple(self.sentence)


def nearest(
    embedder: Embedder,
    word: str,
    sentences: Iterable[List[str]],
    queries: Optional[Iterable[List[str]]] = None,
    n_nearest: int = 5,
    max_occurrences: int = MAX_OCCURRENCES,
) -> List[Neighbours]:
    """Do what `ElmoEmbedder.nearest` describes."""
    if not isinstance(word, str) or split_words(word.encode(errors="replace")) != [word]:
        raise ConfigurationError(f"got {word!r}, but one word is compared: give a word as a string")
    asked_sentences = check_sentences([] if queries is None else queries)
    for name, number in (("n_nearest", n_nearest), ("max_occurrences", max_occurrences)):
        least = _N_GROUPS if name == "max_occurrences" and not asked_sentences else 1
        if number < least:
            raise ConfigurationError(f"{name} is {number}; it must be at least {least}")
    if embedder.elmo_bilm.initial_state == "carried":
        raise ConfigurationError(
            'initial_state is "carried", with which the vectors of a sentence depend on those that '
            'were embedded before: they can only be compared with "settled", the default of '
            'ElmoEmbedder, or "zero"'
        )
    asked = [place for query in asked_sentences for place in _places_in_query(word, query)]
    found = _sample(word, sentences, max_occurrences)
    if not asked and len(found) < _N_GROUPS:
        raise ConfigurationError(
            f"the word {word!r} occurs once in the text (the same sentence again doesn't count), "
            "so there is nothing to compare it with; give more text, or a query"
        )
    places = [*asked, *found]
    vectors = _vectors(embedder, places)  # (places, dim)
    vectors = _of_length_1(vectors - vectors.sum(0) / (len(vectors) + _N_ZEROS))
    n_asked = len(asked)
    chosen = list(range(n_asked)) or _of_each_group(vectors)
    results = []
    for index in chosen:
        query = places[index]
        similarities = vectors @ vectors[index]
        order = numpy.argsort(-similarities[n_asked:], kind="stable") + n_asked
        # Other occurrences in the same sentence are others, but the query itself isn't.
        near = [i for i in order.tolist() if places[i].key != query.key][:n_nearest]
        results.append(
            Neighbours(
                Occurrence(1.0, *query),
                [Occurrence(float(similarities[i]), *places[i]) for i in near],
            )
        )
    return results


def _places_in_query(word: str, query: List[str]) -> List[_Place]:
    places = [_Place.of(query, i) for i, each in enumerate(query) if each == word]
    if not places:
        raise ConfigurationError(
            f"the word {word!r} is not in the query {' '.join(query)!r}; words are compared as "
            "they are written"
        )
    return places


def _sample(word: str, sentences: Iterable[List[str]], size: int) -> List[_Place]:
    """
    Return occurrences of a word in the order of the text: all of them, or `size` drawn at random
    with the same result each time. Of sentences that are the same, one counts.
    """
    if isinstance(sentences, str):
        check_sentences(sentences)
    sample: List[_Place] = []
    keys: Set[Any] = set()  # of the sample
    generator = random.Random(0)
    n_found, n_words = 0, 0
    other_forms: Counter = Counter()
    folded = word.casefold()
    for number, sentence in enumerate(sentences):
        if isinstance(sentence, (str, bytes)):
            check_sentences([sentence])
        sentence = list(sentence)
        n_words += len(sentence)
        if word not in sentence:
            if not n_found:
                other_forms.update(each for each in sentence if each.casefold() == folded)
            continue
        check_sentences([sentence])
        for position in [i for i, each in enumerate(sentence) if each == word]:
            place = _Place.of(sentence, position, number)
            if place.key in keys:
                continue
            n_found += 1
            if len(sample) < size:
                sample.append(place)
                keys.add(place.key)
            elif (index := generator.randrange(n_found)) < size:
                keys.symmetric_difference_update((sample[index].key, place.key))
                sample[index] = place
    if not n_words:
        raise ConfigurationError(f"there is no text in which to look for the word {word!r}")
    if not sample:
        hint = "words are compared as they are written"
        if other_forms:
            forms = (f"{form!r} ({count:,} times)" for form, count in other_forms.most_common(3))
            hint = f"there is {', '.join(forms)}"
        raise ConfigurationError(
            f"the word {word!r} is not in the text of {n_words:,} words; {hint}"
        )
    return sorted(sample, key=lambda place: (place.number, place.position))


def _vectors(embedder: Embedder, places: Sequence[_Place]) -> Array:
    """Return the top layer of each place, float32, shape `(places, dim)`."""
    rows: Dict[int, List[int]] = {}  # by the identity of a sentence, which many may share
    for row, place in enumerate(places):
        rows.setdefault(id(place.sentence), []).append(row)
    sentences = [places[each[0]].sentence for each in rows.values()]
    vectors = numpy.empty((len(places), embedder.elmo_bilm.get_output_dim()), "float32")
    for batch in batches_by_length([len(each) for each in sentences], _BATCH_TOKENS):
        arrays = embedder.embed_batch([sentences[i] for i in batch], "top")
        for i, array in zip(batch, arrays):
            here = rows[id(sentences[i])]
            vectors[here] = array[[places[row].position for row in here]]
    return vectors


def _of_length_1(vectors: Array) -> Array:
    lengths = numpy.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / numpy.maximum(lengths, numpy.finfo("float32").tiny)


def _of_each_group(vectors: Array) -> List[int]:
    """
    Divide vectors of length 1, shape `(n, dim)`, into groups, and return the one nearest to the
    mean of each, those of the larger group first.
    """
    from sklearn.cluster import KMeans

    groups = KMeans(_N_GROUPS, n_init=10, random_state=0).fit(vectors)
    sizes = numpy.bincount(groups.labels_, minlength=_N_GROUPS)
    chosen = []
    for group in numpy.argsort(-sizes, kind="stable"):
        members = numpy.flatnonzero(groups.labels_ == group)
        if len(members):
            middle = vectors[members] @ groups.cluster_centers_[group]
            chosen.append(int(members[numpy.argmax(middle)]))
    return chosen
