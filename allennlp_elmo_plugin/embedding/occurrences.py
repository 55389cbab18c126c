"""
The occurrences of a word in a text: finding them, and their vectors.
"""

import random
from collections import Counter
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import h5py
import numpy

from allennlp_elmo_plugin.bilm.characters import check_sentences
from allennlp_elmo_plugin.embedding.corpus_embedder import Embedder, batches_by_length
from allennlp_elmo_plugin.files.text_lines import split_words
from allennlp_elmo_plugin.progress import step_bar

_N_ZEROS = 5
"""
Zero vectors that are added to the occurrences for their mean: of few occurrences, the mean itself
says more about them than about the word.
"""

_BATCH_TOKENS = 4096
_MAX_SENTENCE = 200
"""Of longer sentences, half as many words on each side of the word are used."""

Array = Any  # numpy.ndarray, whose type parameters differ between the supported versions


class Place(NamedTuple):
    """
    An occurrence of a word whose vector is not known yet; see `Occurrence`. `start` words of a long
    sentence are left out before `sentence`.
    """

    sentence: List[str]
    position: int
    number: Optional[int] = None
    start: int = 0

    @classmethod
    def of(cls, sentence: List[str], position: int, number: Optional[int] = None) -> "Place":
        start = 0
        if len(sentence) > _MAX_SENTENCE:
            start = max(0, position - _MAX_SENTENCE // 2)
            sentence = sentence[start : position + 1 + _MAX_SENTENCE // 2]
        return cls(sentence, position - start, number, start)

    @property
    def key(self) -> Tuple[int, Tuple[str, ...]]:
        return self.position, tuple(self.sentence)


def check_word(word: str) -> None:
    """Check that this is one word."""
    if not isinstance(word, str) or split_words(word.encode(errors="replace")) != [word]:
        raise ValueError(f"got {word!r}, but one word is compared: give a word as a string")


def sample_occurrences(
    word: str, sentences: Iterable[List[str]], size: int
) -> Tuple[List[Place], int]:
    """
    Return occurrences of a word in the order of the text: all of them, or `size` drawn at random
    with the same result each time; and how many there are. Of sentences that are the same, one
    is in the sample; only if all occurrences are, the number is exact.
    """
    if isinstance(sentences, str):
        check_sentences(sentences)  # which are read once, below
    sample: List[Place] = []
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
            place = Place.of(sentence, position, number)
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
        raise ValueError(f"there is no text in which to look for the word {word!r}")
    if not sample:
        hint = "words are compared as they are written"
        if other_forms:
            forms = (f"{form!r} ({count:,} times)" for form, count in other_forms.most_common(3))
            hint = f"there is {', '.join(forms)}"
        raise ValueError(f"the word {word!r} is not in the text of {n_words:,} words; {hint}")
    return sorted(sample, key=lambda place: (place.number, place.position)), n_found


def embed_places(embedder: Embedder, places: Sequence[Place], output_format: str) -> Array:
    """
    Return the vectors of each place, float32: of the `"top"` layer, shape `(places, dim)`, or of
    `"all"`, shape `(layers, places, dim)`.
    """
    rows: Dict[int, List[int]] = {}  # by the identity of a sentence, which many may share
    for row, place in enumerate(places):
        rows.setdefault(id(place.sentence), []).append(row)
    sentences = [places[each[0]].sentence for each in rows.values()]
    vectors: List[Array] = [None] * len(places)  # (dim,) or (layers, dim) each
    with step_bar("embedding", len(sentences), "sentences") as update:
        for batch in batches_by_length([len(each) for each in sentences], _BATCH_TOKENS):
            arrays = embedder.embed_batch([sentences[i] for i in batch], output_format)
            for i, array in zip(batch, arrays):
                for row in rows[id(sentences[i])]:
                    vectors[row] = array[..., places[row].position, :].copy()
            update(len(batch))
    return numpy.stack(vectors, axis=-2)


def read_vectors(layers_file: str, places: Sequence[Place]) -> Array:
    """
    Return the vectors of each place, shape `(places, dim)`: those of the top layer in the file that
    `allennlp elmo` has written of the text, or of the only one.
    """
    vectors = []
    with h5py.File(layers_file, "r") as file:
        for place in places:
            layers = file.get(str(place.number))  # ([layers,] words, dim)
            n_words = 0 if layers is None else layers.shape[-2]
            if n_words != len(place.sentence) and n_words <= _MAX_SENTENCE:
                raise ValueError(
                    f"{layers_file}: key {place.number} doesn't have the {len(place.sentence)} "
                    f"words of line {(place.number or 0) + 1} of the text; give the text that was "
                    "embedded, and layers whose keys are the numbers of its lines"
                )
            index = place.start + place.position
            vectors.append(layers[index] if layers.ndim == 2 else layers[-1, index])
    return numpy.stack(vectors).astype("float32")


def comparable(vectors: Array) -> Array:
    """
    Return vectors, shape `(..., places, dim)`, less their mean and of length 1, so that the dot
    product of two says how much alike they are.
    """
    vectors = vectors - vectors.sum(-2, keepdims=True) / (vectors.shape[-2] + _N_ZEROS)
    lengths = numpy.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / numpy.maximum(lengths, numpy.finfo("float32").tiny)
