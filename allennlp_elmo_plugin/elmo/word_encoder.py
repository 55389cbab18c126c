"""The token layer of a model that reads whole words: rows of a table, by the vocabulary."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from allennlp_elmo_plugin.bilm.character_encoder import EncoderWeights
from allennlp_elmo_plugin.bilm.model_call import copy_to, model_call
from allennlp_elmo_plugin.bilm.options import BiLmOptions, CharCnnOptions
from allennlp_elmo_plugin.elmo.elmo_character_encoder import ElmoCharacterEncoder
from allennlp_elmo_plugin.elmo.many_langs_encoder import spelling_of, word_of
from allennlp_elmo_plugin.pretrained.checkpoints.layout import ModelFiles
from allennlp_elmo_plugin.pretrained.language_model import read_words
from allennlp_elmo_plugin.text.vocabulary import UNKNOWN_WORD

_NO_CHARACTERS = CharCnnOptions(filters=(), activation="relu", embedding_dim=1)


class WordEncoder(ElmoCharacterEncoder):
    """
    An `ElmoCharacterEncoder` that looks up words, as bilm-tf's `TokenBatcher` does; those that the
    vocabulary lacks are `<UNK>`. Character ids are decoded as bytes.
    """

    keeps_tables = False
    reads_bytes = False

    def __init__(
        self,
        options_file: None,
        weight_file: None,
        requires_grad: bool,
        opened: tuple[BiLmOptions, ModelFiles],
    ) -> None:
        options, files = opened
        no_characters = replace(options, char_cnn=_NO_CHARACTERS, project_characters=False)
        super().__init__(options_file, weight_file, requires_grad, (no_characters, files))
        del self._char_embedding_weights
        self.words = read_words(files, options.n_tokens_vocab, files.vocabulary)
        self._ids = {word: index for index, word in enumerate(self.words)}
        rows = torch.empty(len(self.words), self.output_dim, device="meta")
        self.weight = torch.nn.Parameter(rows)

    @property
    def weights(self) -> list[torch.Tensor]:
        return [self.weight]

    @model_call
    def embed_words(self, words: Sequence[str]) -> torch.Tensor:
        return self._embed(list(map(spelling_of, words)))

    def _spelled(self, spellings: list[bytes], weights: EncoderWeights) -> torch.Tensor:
        unknown = self._ids[UNKNOWN_WORD]
        words = (word_of(spelling, self.boundary_words) for spelling in spellings)
        rows = [self._ids.get(word, unknown) for word in words]
        index = torch.tensor(rows, dtype=torch.long, device="cpu")
        return self.weight.index_select(0, copy_to(index, self.weight.device))
