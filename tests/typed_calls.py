"""
Calls that a type checker accepts, and wrong ones that it refuses: `make types` fails if one of the
comments `type: ignore` is needless.
"""

from pathlib import Path

import numpy as np
import torch

from allennlp_elmo_plugin import Elmo, ElmoEmbedder, batch_to_ids
from allennlp_elmo_plugin.adapters.elmoformanylangs import Embedder
from allennlp_elmo_plugin.adapters.sentence_transformers import ElmoSentences
from allennlp_elmo_plugin.adapters.simple_elmo import ElmoModel


def accepted(embedder: ElmoEmbedder, words: tuple[str, ...], path: Path) -> None:
    ids: torch.Tensor = batch_to_ids([words])
    batches = [words], (words,), [list(words)], iter([words])
    for batch in batches:
        Elmo(path, 2).embed_sentences(batch)
    arrays: list[np.ndarray] = embedder.embed_batch(batches[0], "average")
    top: np.ndarray = embedder.embed_sentence(words, "top")
    embedder.embed_batch([words], [0, 2])
    embedder.encode([words], layers=1)
    vectors: np.ndarray = embedder.encode(["a b", words], "max", "all", batch_size=1)
    cosines: torch.Tensor = embedder.similarity(vectors, vectors)
    embedder.embed_file(path, path, "top")
    embedder.nearest("a", (words,), [words])
    ElmoEmbedder(path, 0, initial_state="carried", precision="int8", vocab_to_cache=words)
    Elmo(path, path / "weights.hdf5", vocab_to_cache=words, scalar_mix_parameters=(0.0, 1.0, 0.0))
    Embedder(path).sents2elmo([words], -2)
    ElmoModel().get_elmo_vectors((words,), layers="all")
    ElmoSentences(path, "max", "top")
    print(ids, arrays, top, cosines)


def refused(embedder: ElmoEmbedder, words: list[str]) -> None:
    embedder.embed_batch([words], "last")  # type: ignore[arg-type]
    embedder.encode([words], "sum")  # type: ignore[arg-type]
    embedder.encode([words], layers="first")  # type: ignore[arg-type]
    ElmoEmbedder("tiny", initial_state="warm")  # type: ignore[arg-type]
    Elmo("tiny", precision="float16")  # type: ignore[arg-type]
    ElmoModel().get_elmo_vectors([words], layers="last")  # type: ignore[arg-type]
