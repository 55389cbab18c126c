"""The occurrences of a word in a text: their vectors, and which of them are most alike."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import h5py
import numpy as np

from allennlp_elmo_plugin.arguments import check_at_least
from allennlp_elmo_plugin.bilm.characters import Sentences, check_sentences
from allennlp_elmo_plugin.embedding.batches import BatchEmbedder, Layers

MAX_OCCURRENCES = 1000
"""Default number of occurrences that are compared, drawn at random if there are more."""

# The mean of few occurrences says more about them than about the word. Zeros keep it small.
_N_ZEROS = 5
_MAX_SENTENCE = 200
_N_GROUPS = 2
_SHOWN_COLUMNS = 34  # on each side of the word


class Occurrence(NamedTuple):
    """
    A word in a sentence, of which long ones are cut to 100 words on each side: its position there,
    the sentence's number in the text if it is from there, how many words were cut off at the start,
    and the similarity to the query. `str()` shows the word in the middle of a line.
    """

    sentence: list[str]
    position: int
    number: int | None = None
    start: int = 0
    similarity: float = 1.0

    def __str__(self) -> str:
        before = _start(self.sentence[: self.position][::-1])[::-1]
        after = _start(self.sentence[self.position + 1 :])
        word = self.sentence[self.position]
        return f"{' '.join(before):>{_SHOWN_COLUMNS}} [{word}] {' '.join(after)}".rstrip()

    @property
    def key(self) -> tuple[int, tuple[str, ...]]:
        return self.position, tuple(self.sentence)


def _start(words: list[str]) -> list[str]:
    ends = itertools.accumulate(len(word) + 1 for word in words)
    return [word for word, end in zip(words, ends) if end <= _SHOWN_COLUMNS + 1]


class Neighbours(NamedTuple):
    """An occurrence of a word and those most similar to it. `str()` shows them as a table."""

    query: Occurrence
    nearest: list[Occurrence]

    def __str__(self) -> str:
        rows = [f"{place.similarity:7.2f}  {place}" for place in self.nearest]
        return "\n".join([f"  query  {self.query}", *rows])


def nearest(
    vectors_of: Callable[[Sequence[Occurrence]], np.ndarray],
    word: str,
    sentences: Sentences,
    queries: Sentences | None,
    n_nearest: int,
    max_occurrences: int,
) -> list[Neighbours]:
    """Do what `ElmoEmbedder.nearest` describes with vectors of shape `(places, dim)`."""
    check_at_least(1, n_nearest=n_nearest, max_occurrences=max_occurrences)
    places: list[Occurrence] = []
    for query in check_sentences(queries or []):
        if word not in query:
            raise ValueError(f"the word {word!r} is not in the query {' '.join(query)!r}")
        places += _occurrences(word, query)
    n_queries = len(places)
    places += sample_occurrences(word, sentences, max_occurrences)[0]
    if len(places) < _N_GROUPS:
        raise ValueError(
            f"the word {word!r} occurs once in the text (the same sentence again doesn't count); "
            "give more text, or a query"
        )
    vectors = comparable(vectors_of(places))  # (places, dim)
    results = []
    for index in range(n_queries) or _middles(vectors):
        similarities = (vectors[n_queries:] @ vectors[index]).tolist()
        # The query is not its own neighbour, but the same word elsewhere in its sentence is one.
        neighbours = [
            place._replace(similarity=similarity)
            for place, similarity in zip(places[n_queries:], similarities)
            if place.key != places[index].key
        ]
        neighbours.sort(key=lambda place: -place.similarity)
        results.append(Neighbours(places[index], neighbours[:n_nearest]))
    return results


def _occurrences(word: str, sentence: list[str], number: int | None = None) -> list[Occurrence]:
    occurrences = []
    for position in [i for i, other in enumerate(sentence) if other == word]:
        start, context = 0, sentence
        if len(sentence) > _MAX_SENTENCE:
            start = max(0, position - _MAX_SENTENCE // 2)
            context = sentence[start : position + 1 + _MAX_SENTENCE // 2]
        occurrences.append(Occurrence(context, position - start, number, start))
    return occurrences


def group(vectors: np.ndarray, n_groups: int | None = None) -> list[int]:
    """
    Return the number of each vector's group, 0 for the largest. k-means makes `n_groups`, by
    default as many as have the highest silhouette.
    """
    labels = [0] * len(vectors)
    if n_groups is not None:
        labels = _k_means(vectors, n_groups)
    elif (most := min(8, math.isqrt(len(vectors) // 2))) > 1:
        from sklearn.metrics import silhouette_score

        choices = [_k_means(vectors, number) for number in range(2, most + 1)]
        labels = max(choices, key=lambda some: len({*some}) > 1 and silhouette_score(vectors, some))
    by_size = [label for label, _ in Counter(labels).most_common()]
    return [by_size.index(label) for label in labels]


def _k_means(vectors: np.ndarray, number: int) -> list[int]:
    """Return the groups of twenty random starts whose vectors are nearest to their means."""
    generator = np.random.default_rng(0)
    results = []  # of a sum of squared distances, and the groups
    for _ in range(20):
        means = vectors[generator.choice(len(vectors), number, replace=False)]
        labels = np.full(len(vectors), -1)
        while True:
            # Squared distances, less the lengths of the vectors: (n, number)
            distances = (means**2).sum(1) - 2 * vectors @ means.T
            before, labels = labels, distances.argmin(1)
            if np.array_equal(before, labels):
                break
            for group in np.unique(labels):
                means[group] = vectors[labels == group].mean(0)
        results.append((distances.min(1).sum(), labels.tolist()))
    return min(results)[1]


def _middles(vectors: np.ndarray) -> list[int]:
    """Return the vector in the middle of each group of `(n, dim)`, the larger group first."""
    groups = np.array(group(vectors, _N_GROUPS))
    members = [np.flatnonzero(groups == number) for number in range(groups.max() + 1)]
    return [int(rows[np.argmax(vectors[rows] @ vectors[rows].mean(0))]) for rows in members]


def sample_occurrences(word: str, sentences: Sentences, size: int) -> tuple[list[Occurrence], int]:
    """
    Return occurrences of a word in the order of the text, all of them or a random sample of `size`,
    the same each time; and how many there are. Equal sentences are in the sample once. The number
    is exact if all occurrences are in it; otherwise it may count equal sentences again.
    """
    sample: list[Occurrence] = []
    keys = set()  # of the sample
    generator = random.Random(0)
    n_found, n_words = 0, 0
    for number, sentence in enumerate(sentences):
        (sentence,) = check_sentences([sentence])
        n_words += len(sentence)
        for place in _occurrences(word, sentence, number):
            if place.key in keys:
                continue
            n_found += 1
            if len(sample) < size:
                sample.append(place)
                keys.add(place.key)
            elif (index := generator.randrange(n_found)) < size:
                keys.symmetric_difference_update((sample[index].key, place.key))
                sample[index] = place
    if not sample:
        raise ValueError(
            f"the word {word!r} is not in the text of {n_words:,} words; words are compared as "
            "they are written"
        )
    return sorted(sample, key=lambda place: (place.number, place.position)), n_found


def embed_word(
    embedder: BatchEmbedder, places: Sequence[Occurrence], output_format: Layers
) -> np.ndarray:
    """Return the word's vectors in the `"top"` layer or `"all"`, `([layers,] places, dim)`."""
    by_sentence = itertools.groupby(places, lambda place: id(place.sentence))
    groups = [list(group) for _, group in by_sentence]
    vectors = {}  # ([layers,] places of the sentence, dim) each
    for i, layers in embedder.embed_all([group[0].sentence for group in groups], output_format):
        vectors[i] = layers[..., [place.position for place in groups[i]], :]
    return np.concatenate([vectors[i] for i in range(len(groups))], axis=-2)


def read_vectors(layers_file: str, places: Sequence[Occurrence]) -> np.ndarray:
    """Return vectors of the top layer, shape `(places, dim)`, from a file of the command `elmo`."""
    vectors = []
    with h5py.File(layers_file, "r") as file:
        for place in places:
            layers = file.get(str(place.number))  # ([layers,] words, dim)
            n_words = 0 if layers is None else layers.shape[-2]
            if n_words != len(place.sentence) and n_words <= _MAX_SENTENCE:
                raise ValueError(
                    f"{layers_file}: key {place.number} doesn't have the {len(place.sentence)} "
                    f"words of line {(place.number or 0) + 1} of the text; give the text that was "
                    "embedded, by `elmo` without `--pool`"
                )
            index = place.start + place.position
            vectors.append(layers[index] if layers.ndim == 2 else layers[-1, index])
    return np.stack(vectors).astype("float32")


def comparable(vectors: np.ndarray) -> np.ndarray:
    """Subtract the mean of vectors, shape `(..., places, dim)`, and scale them to length 1."""
    vectors = vectors - vectors.sum(-2, keepdims=True) / (vectors.shape[-2] + _N_ZEROS)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo("float32").tiny)
