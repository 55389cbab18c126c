"""The `ElmoEmbedder` of AllenNLP 0.9, and what was beside it in `allennlp.commands.elmo`."""

from os import PathLike
from typing import Any

import numpy as np
import torch
from allennlp.commands.subcommand import Subcommand
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer

from allennlp_elmo_plugin.bilm.characters import Sentences, split_letters
from allennlp_elmo_plugin.commands import elmo as elmo_of_program
from allennlp_elmo_plugin.elmo import elmo
from allennlp_elmo_plugin.embedding import embedder
from allennlp_elmo_plugin.embedding.batches import Layers
from allennlp_elmo_plugin.pretrained.find_model import DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE

DEFAULT_BATCH_SIZE = 64
Elmo = Subcommand.by_name("elmo")
elmo_command = elmo_of_program.Elmo().run


class ElmoEmbedder(embedder.ElmoEmbedder):
    """
    AllenNLP 0.9's `ElmoEmbedder`. It differs from our class of this name: the default model is the
    published original, states are carried from batch to batch, a sentence may be a string, which
    is read letter by letter, and `embed_file` replaces an existing file.
    """

    def __init__(
        self,
        options_file: str | PathLike[str] = DEFAULT_OPTIONS_FILE,
        weight_file: str | PathLike[str] | int = DEFAULT_WEIGHT_FILE,
        cuda_device: int = -1,
    ) -> None:
        super().__init__(options_file, weight_file, cuda_device, initial_state="carried")
        self.indexer = ELMoTokenCharactersIndexer()

    def batch_to_embeddings(self, batch: Sentences) -> tuple[torch.Tensor, torch.Tensor]:
        layers, mask = super().batch_to_embeddings(split_letters(batch))
        return layers, mask.long()  # Programs subtract from it.

    def embed_batch(self, batch: Sentences, output_format: Layers = "all") -> list[np.ndarray]:
        arrays = super().embed_batch(split_letters(batch), output_format)
        if output_format != "all":
            return arrays
        return [array if array.shape[1] else empty_embedding() for array in arrays]

    def embed_file(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        return super().embed_file(*arguments, **{"overwrite": True, **options})


def batch_to_ids(batch: Sentences) -> torch.Tensor:
    """Return the character ids of sentences; a string is read letter by letter."""
    return elmo.batch_to_ids(split_letters(batch))


def empty_embedding() -> np.ndarray:
    """Return what 0.9 returns for an empty sentence, whatever the size of the model."""
    return np.zeros((3, 0, 1024))
