"""A module of sentence-transformers."""

import json
from pathlib import Path
from typing import Any, Literal, Self

import torch

from allennlp_elmo_plugin.embedding.batches import POOLINGS, Pooling
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder, split_text
from allennlp_elmo_plugin.files.atomic import PathLike

_FILE = "encode.json"


class ElmoSentences(torch.nn.Module):
    """
    The first module of a `SentenceTransformer`: the vectors of `ElmoEmbedder.encode`, which
    training doesn't change.

        model = SentenceTransformer(modules=[ElmoSentences("tiny")])
    """

    def __init__(
        self,
        model: PathLike = "tiny",
        pooling: Pooling = "mean",
        layers: Literal["average", "top"] = "average",
    ) -> None:
        super().__init__()
        if layers not in ("average", "top") or pooling not in POOLINGS:
            names = ", ".join(POOLINGS)
            raise ValueError(f"got {layers!r} and {pooling!r}; give average or top, and {names}")
        self._embedder = ElmoEmbedder(model)
        self.elmo_bilm = self._embedder.elmo_bilm  # moves to devices with this module
        self._settings: dict[str, Any] = {"pooling": pooling, "layers": layers}

    def tokenize(self, texts: list[str], **_: Any) -> dict[str, Any]:
        options: Any = {"tokenizer": split_text, "show_progress_bar": False}
        vectors = self._embedder.encode(texts, **self._settings, **options)
        return {"sentence_embedding": torch.from_numpy(vectors)}

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        return features

    def get_sentence_embedding_dimension(self) -> int:
        return self.elmo_bilm.get_output_dim()

    def save(self, output_path: str, **_: Any) -> None:
        self._embedder.save(output_path)
        Path(output_path, _FILE).write_text(json.dumps(self._settings), "utf-8")

    @classmethod
    def load(cls, input_path: str) -> Self:
        return cls(input_path, **json.loads(Path(input_path, _FILE).read_text("utf-8")))
