from typing import Any, Dict, List, Optional, Sequence

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.fields import Field
from allennlp.data.vocabulary import Vocabulary

from allennlp_elmo_plugin.bilm.vocabulary import UNKNOWN_WORD


class VocabularyIdsField(Field[torch.Tensor]):
    """
    Words as ids of a vocabulary that has its own unknown word, `<UNK>`, as bilm-tf's has:
    AllenNLP's non-padded namespaces have none.

    # Parameters

    words : `Sequence[str]`
    namespace : `str`
        A namespace of the vocabulary with the word `<UNK>`.
    padding_value : `int`, optional (default = `0`)
        The value at positions after the last word.
    num_steps : `int`, optional (default = `0`)
        The tensor has at least so many positions.
    """

    __slots__ = ["_ids", "namespace", "num_steps", "padding_value", "words"]

    def __init__(
        self, words: Sequence[str], namespace: str, padding_value: int = 0, num_steps: int = 0
    ) -> None:
        self.words = words
        self.namespace = namespace
        self.padding_value = padding_value
        self.num_steps = num_steps
        self._ids: Optional[List[int]] = None

    def index(self, vocab: Vocabulary) -> None:
        ids = vocab.get_token_to_index_vocabulary(self.namespace)
        unknown = ids.get(UNKNOWN_WORD)
        if unknown is None:
            raise ConfigurationError(
                f"The vocabulary has no word {UNKNOWN_WORD} in its namespace {self.namespace}; "
                "make it with `allennlp elmo-vocab` and set in the configuration: "
                '"vocabulary": {"type": "from_files", "directory": ...}'
            )
        get = ids.get
        self._ids = [get(word, unknown) for word in self.words]

    def get_padding_lengths(self) -> Dict[str, int]:
        return {"num_words": max(len(self.words), self.num_steps)}

    def as_tensor(self, padding_lengths: Dict[str, int]) -> torch.Tensor:
        """
        # Returns

        `torch.Tensor`
            int64, shape (num_words,).
        """
        if self._ids is None:
            raise ConfigurationError("Call index(vocab) on a VocabularyIdsField before as_tensor")
        padding = [self.padding_value] * (padding_lengths["num_words"] - len(self._ids))
        return torch.tensor(self._ids + padding, dtype=torch.long)  # (num_words,)

    def empty_field(self) -> "VocabularyIdsField":
        field = VocabularyIdsField([], self.namespace, self.padding_value)
        field._ids = []
        return field

    def __len__(self) -> int:
        return len(self.words)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, VocabularyIdsField):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __str__(self) -> str:
        return f"VocabularyIdsField in {self.namespace} with words: {' '.join(self.words)}"

    def human_readable_repr(self) -> List[str]:
        return list(self.words)
