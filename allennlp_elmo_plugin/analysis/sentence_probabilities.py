"""The probabilities of the words of sentences under a language model."""

import math
from collections.abc import Iterator, Mapping

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
    found = {}
    for direction, hidden, targets in predictions(bilm, softmax, vocabulary, sentences):
        values = softmax.log_probabilities(hidden.flatten(0, 1), targets.flatten())
        found[direction] = values.view(targets.shape).cpu()
    return found


@torch.no_grad()
def predictions(
    bilm: BiLm, softmax: Softmax, vocabulary: Mapping[str, int], sentences: list[list[str]]
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """
    Yield for each direction its name, the vectors that predict words, shape
    `(n_sentences, longest + 1, projection_dim)`, and the ids of these words.
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
    ids = ids.to(device)
    forward, *backward = top.split(bilm.options.projection_dim, -1)
    yield "forward", forward[:, :-1], ids[:, 1:]
    for hidden in backward:
        yield "backward", hidden[:, 1:], ids[:, :-1]


def perplexity_of(loss: float) -> float:
    """Return the perplexity of a mean loss in nats: infinity where a float can't hold it."""
    return math.inf if loss > 709 else math.exp(loss)
