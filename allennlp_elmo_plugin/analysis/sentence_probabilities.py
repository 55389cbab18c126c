"""The probabilities of the words of sentences under a language model."""

import math
from collections.abc import Iterator, Mapping

import torch

from allennlp_elmo_plugin.bilm import characters
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.text.vocabulary import UNKNOWN_WORD


@torch.no_grad()
def sentence_log_probabilities(
    bilm: BiLm, softmax: Softmax, vocabulary: Mapping[str, int], sentences: list[list[str]]
) -> dict[str, torch.Tensor]:
    """
    Return for each direction the natural logarithms of the probabilities of words, each given all
    that is before it in this direction, shape `(n_sentences, longest + 1)`, in text order: forward
    those of the words and then of `</S>`, backward of `<S>` and then of the words. The states start
    from zero, and words that aren't in the vocabulary count as `<UNK>`.
    """
    log_probabilities = {}
    for direction, hidden, targets in predictions(bilm, softmax, vocabulary, sentences):
        values = softmax.log_probabilities(hidden.flatten(0, 1), targets.flatten())
        log_probabilities[direction] = values.view(targets.shape).cpu()
    return log_probabilities


@torch.no_grad()
def predictions(
    bilm: BiLm, softmax: Softmax, vocabulary: Mapping[str, int], sentences: list[list[str]]
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """
    Yield for each direction its name, the vectors that predict words, shape
    `(n_sentences, longest + 1, projection_dim)`, and the ids of these words.
    """
    start, end = characters.BEGIN_SENTENCE_WORD, characters.END_SENTENCE_WORD
    bounded = [[start, *words, end] for words in sentences]
    unknown, device = vocabulary[UNKNOWN_WORD], softmax.weight.device
    rows = [torch.tensor([vocabulary.get(word, unknown) for word in row]) for row in bounded]
    # (n_sentences, longest + 2), of characters (n_sentences, longest + 2, max_characters)
    ids = tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
    if (char_cnn := bilm.options.char_cnn) is not None:
        table = characters.CharacterTable(char_cnn.max_characters_per_token)
        character_ids = characters.sentences_to_character_ids(bounded, table)
        tokens = torch.from_numpy(character_ids).to(device)
    output = bilm(tokens, list(map(len, bounded)))
    # (n_sentences, longest + 2, n_directions * projection_dim)
    top = output.unpack(output.n_layers - 1)
    forward, *backward = top.split(bilm.options.projection_dim, -1)
    yield "forward", forward[:, :-1], ids[:, 1:]
    for hidden in backward:
        yield "backward", hidden[:, 1:], ids[:, :-1]


def perplexity_of(loss: float) -> float:
    """Return the perplexity of a mean loss in nats: infinity where a float can't hold it."""
    return math.inf if loss > 709 else math.exp(loss)
