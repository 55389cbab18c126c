"""A component for spaCy's pipelines: `nlp.add_pipe("elmo", config={"model": "tiny"})`."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import minibatch

from allennlp_elmo_plugin.embedding.batches import select_layers
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.files.atomic import PathLike
from allennlp_elmo_plugin.progress import progress_of_command


class ElmoPipe:
    """
    The component "elmo", which `allennlp_elmo_spacy.py` registers.

    Sets `doc.tensor`, shape `(tokens, dim)`, to the `"average"` of the layers, to all
    `"concatenated"`, or to one: the `"top"` one or a number. `vector` and `similarity` of tokens,
    spans and documents then use it. Sentences are embedded one by one if an earlier component has
    found them, or else the whole document.
    """

    def __init__(
        self,
        nlp: Language,
        name: str,
        model: str = "tiny",
        layers: Literal["average", "top", "concatenated"] | int = "average",
        device: str = "cpu",
    ) -> None:
        self.name, self._model, self._layers, self._device = name, model, layers, device

    @cached_property
    def embedder(self) -> ElmoEmbedder:
        # Loaded when it is first used: `from_disk` may come before, with another folder.
        return ElmoEmbedder(self._model, device=self._device)

    def __call__(self, doc: Doc) -> Doc:
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Yield the documents, of which `batch_size` are embedded together."""
        dim = select_layers(self.embedder.elmo_bilm, self._layers).dim
        for docs in minibatch(stream, batch_size):
            spans: list[Span] = []
            for doc in docs:
                doc.tensor = np.zeros((len(doc), dim), "float32")
                for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
                    hooks.update(vector=_vector, similarity=_similarity)
                spans += doc.sents if doc.has_annotation("SENT_START") else [doc[:]]
            words = [[token.text for token in span] for span in spans]
            with progress_of_command(quiet=True):
                for i, array in self.embedder.embed_all(words, self._layers):
                    spans[i].doc.tensor[spans[i].start : spans[i].end] = array
            yield from docs

    def to_disk(self, path: PathLike, *, exclude: Iterable[str] = ()) -> None:
        self.embedder.save(path)

    def from_disk(self, path: PathLike, *, exclude: Iterable[str] = ()) -> Self:
        self.embedder = ElmoEmbedder(path, device=self._device)
        return self


def _vector(part: Any) -> np.ndarray:
    """Return the vector of a token, or the mean of those of a span or document."""
    tensor = part.tensor  # ([tokens,] dim)
    return tensor if tensor.ndim == 1 else tensor.sum(0) / max(1, len(tensor))


def _similarity(part: Any, other: Any) -> float:
    return ElmoEmbedder.similarity(part.vector, other.vector).item()
