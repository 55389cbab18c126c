"""The probabilities of the words of sentences under a language model."""

import csv
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from allennlp_elmo_plugin.bilm import characters
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.embedding.batches import batches_by_length
from allennlp_elmo_plugin.files.atomic import PathLike, atomic_file
from allennlp_elmo_plugin.pretrained.language_model import PretrainedLanguageModel
from allennlp_elmo_plugin.text.vocabulary import UNKNOWN_WORD

_LINES_AT_ONCE = 1024


def parts_that_predict(
    model: PretrainedLanguageModel, device: str = "cpu"
) -> tuple[BiLm, Softmax, dict[str, int]]:
    """Return what the functions below need of a model, on a device."""
    softmax, words = model.parts_that_predict()
    vocabulary = {word: index for index, word in enumerate(words)}
    return model.bilm.to(device).eval(), softmax.to(device).eval(), vocabulary


def score_sentences(
    bilm: BiLm, softmax: Softmax, vocabulary: Mapping[str, int], sentences: Sequence[list[str]]
) -> Iterator[tuple[int, dict[str, torch.Tensor]]]:
    """
    Yield the index of each sentence, in batches of similar lengths, and what
    `sentence_log_probabilities` returns for it, without padding: float64, shape `(n_words + 1,)`.
    """
    for batch in batches_by_length(list(map(len, sentences)), 1024):
        words = [sentences[i] for i in batch]
        by_direction = sentence_log_probabilities(bilm, softmax, vocabulary, words)
        for row, i in enumerate(batch):
            n = len(sentences[i]) + 1
            yield i, {name: values[row, :n].double() for name, values in by_direction.items()}


def write_scores(
    model: PretrainedLanguageModel,
    sentences: Iterable[list[str]],
    output: PathLike,
    by_word: bool = False,
    device: str = "cpu",
) -> int:
    """
    Write a table (TSV) with a row for each sentence, also one without words, or for each word.
    Return the number of sentences. `log_probability` is the mean of the directions.
    """
    parts = parts_that_predict(model, device)
    lines, n_sentences = iter(sentences), 0
    directions = [f"{name}_log_probability" for name in model.options.directions]
    columns = ["sentence", "word" if by_word else "words", "log_probability", "perplexity"]
    with atomic_file(output) as staged, open(staged, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, "excel-tab", lineterminator="\n")
        writer.writerow([*columns, "unknown", *directions, *([] if by_word else ["text"])])
        while block := list(itertools.islice(lines, _LINES_AT_ONCE)):
            scores = dict(score_sentences(*parts, block))
            for row, words in enumerate(block):
                forward, *backward = scores[row].values()
                unknown = [int(word not in parts[-1]) for word in words]
                if by_word:  # without the end of the sentence, or its start
                    logs = [forward[:-1].tolist(), *(values[1:].tolist() for values in backward)]
                    for word, n_unknown, *values in zip(words, unknown, *logs):
                        writer.writerow([n_sentences, word, *_cells(values, 1, n_unknown)])
                else:
                    sums = [values.sum().item() for values in (forward, *backward)]
                    cells = _cells(sums, len(words) + 1, sum(unknown))
                    writer.writerow([n_sentences, len(words), *cells, " ".join(words)])
                n_sentences += 1
    return n_sentences


def _cells(sums: Sequence[float], n_predicted: int, n_unknown: int) -> list[object]:
    """Return the cells of a row from its logarithms by direction."""
    mean = sum(sums) / len(sums)
    log_probability, *others = (f"{value:.6g}" for value in (mean, *sums))
    return [log_probability, f"{perplexity_of(-mean / n_predicted):.6g}", n_unknown, *others]


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
