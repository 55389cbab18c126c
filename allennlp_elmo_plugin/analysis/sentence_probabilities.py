"""The probabilities of the words of sentences under a language model."""

import math
from collections.abc import Mapping

import torch

from allennlp_elmo_plugin.bilm.characters import (
    BEGIN_SENTENCE_WORD,
    END_SENTENCE_WORD,
    CharacterTable,
    sentences_to_character_ids,
)
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.text.vocabulary_file import UNKNOWN_WORD


@torch.no_grad()
def sentence_log_probabilities(
    bilm: BiLm, softmax: Softmax, vocabulary: Mapping[str, int], sentences: list[list[str]]
) -> dict[str, torch.Tensor]:
    """
    Return the natural logarithms of the probabilities of words, each given all that is before it
    in its direction. The states start from zero, and words that aren't in the vocabulary count as
    `<UNK>`.

    # Returns

    `Dict[str, torch.Tensor]`
        For each direction of the model, shape `(n_sentences, longest + 1)`, in text order: forward
        those of the words and then of `</S>`, backward of `<S>` and then of the words.
    """
    bounded = [[BEGIN_SENTENCE_WORD, *words, END_SENTENCE_WORD] for words in sentences]
    unknown = vocabulary[UNKNOWN_WORD]
    rows = [torch.tensor([vocabulary.get(word, unknown) for word in row]) for row in bounded]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # (n_sentences, longest + 2)
    tokens = ids
    char_cnn = bilm.options.char_cnn
    if char_cnn is not None:
        table = CharacterTable(char_cnn.max_characters_per_token)
        # (n_sentences, longest + 2, max_characters)
        tokens = torch.from_numpy(sentences_to_character_ids(bounded, table))
    device = softmax.weight.device
    output = bilm(tokens.to(device), list(map(len, bounded)))
    # (n_sentences, longest + 2, n_directions * projection_dim)
    top = output.unpack(output.n_layers - 1)
    found = {}
    for direction, hidden in zip(
        bilm.options.directions, top.split(bilm.options.projection_dim, -1)
    ):
        if direction == "forward":
            hidden, targets = hidden[:, :-1], ids[:, 1:]
        else:
            hidden, targets = hidden[:, 1:], ids[:, :-1]
        values = softmax.log_probabilities(hidden.flatten(0, 1), targets.flatten().to(device))
        found[direction] = values.view(targets.shape).cpu()  # (n_sentences, longest + 1)
    return found


def perplexity_of(loss: float) -> float:
    """Return the perplexity of a mean loss in nats: infinity where a float can't hold it."""
    return math.inf if loss > 709 else math.exp(loss)
