"""
How surprising each word of a text is for a language model, in both directions.
"""

import math
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.embedding.corpus_embedder import batches_by_length
from allennlp_elmo_plugin.files.json_file import shown
from allennlp_elmo_plugin.models.pretrained import PretrainedLanguageModel
from allennlp_elmo_plugin.models.sentence_probabilities import (
    perplexity_of,
    sentence_log_probabilities,
)
from allennlp_elmo_plugin.plots.page import write_page
from allennlp_elmo_plugin.progress import counted, step_bar

MAX_SENTENCES = 1000
"""Of a longer text, so many sentences from its start are shown."""

_BATCH_TOKENS = 1024
_DIGITS = 3


class Surprise(NamedTuple):
    """
    The surprises of a text: minus the logarithm (base 2) of the probability of each word.

    # Parameters

    directions : `List[str]`
        Those of the model.
    sentences : `List[List[str]]`
    bits : `List[List[List[float]]]`
        For each sentence and direction the bits of each word.
    unknown : `List[List[bool]]`
        For each sentence whether a word isn't in the vocabulary.
    perplexities : `Dict[str, float]`
        Of each direction, over all words and sentence ends; of several, also the geometric mean,
        `both`.
    """

    directions: List[str]
    sentences: List[List[str]]
    bits: List[List[List[float]]]
    unknown: List[List[bool]]
    perplexities: Dict[str, float]


def measure_surprise(
    model: PretrainedLanguageModel, sentences: Sequence[List[str]], device: Any = "cpu"
) -> Surprise:
    """
    Compute the surprise of each word, as `allennlp predict` does: the states start from zero in
    each sentence.
    """
    if model.softmax is None or model.words is None:
        raise ConfigurationError(
            f"{model.source}: has no softmax, with which a language model predicts words; give a "
            "model that was trained here (model.tar.gz or the folder of its run), or an export of "
            "one with softmax.hdf5 and the vocabulary"
        )
    bilm, softmax = model.bilm.to(device).eval(), model.softmax.to(device).eval()
    vocabulary = {word: index for index, word in enumerate(model.words)}
    bits: List[Any] = [None] * len(sentences)
    totals = dict.fromkeys(model.options.directions, 0.0)
    with step_bar("predicting", len(sentences), "sentences") as update:
        for batch in batches_by_length([len(each) for each in sentences], _BATCH_TOKENS):
            found = sentence_log_probabilities(
                bilm, softmax, vocabulary, [sentences[i] for i in batch]
            )
            for row, i in enumerate(batch):
                n_words = len(sentences[i])
                bits[i] = []
                for direction, values in found.items():
                    of_sentence = values[row, : n_words + 1].double()
                    totals[direction] -= of_sentence.sum().item()
                    # Not the sentence's end, and not its start.
                    of_words = of_sentence[:-1] if direction == "forward" else of_sentence[1:]
                    if not bool(of_sentence.isfinite().all()):
                        raise ConfigurationError(
                            f"{model.source}: gives {shown(' '.join(sentences[i]))!r} no finite "
                            "probability; did its training diverge? Give another model"
                        )
                    # Not -0
                    bits[i].append((of_words / -math.log(2)).abs().tolist())
            update(len(batch))
    n_predicted = sum(len(sentence) + 1 for sentence in sentences)
    perplexities = {name: perplexity_of(total / n_predicted) for name, total in totals.items()}
    if len(totals) > 1:
        perplexities["both"] = perplexity_of(sum(totals.values()) / len(totals) / n_predicted)
    unknown = [[word not in vocabulary for word in sentence] for sentence in sentences]
    return Surprise(list(totals), list(sentences), bits, unknown, perplexities)


def write_surprise(found: Surprise, output: str, text: str, model: str, is_cut: bool) -> None:
    """
    Write the text as a page.

    # Parameters

    found : `Surprise`
    output : `str`
        The file.
    text, model : `str`
        What it was made from, for the reader.
    is_cut : `bool`
        Whether the text has more sentences.
    """
    n_words = sum(map(len, found.sentences))
    overall = found.perplexities.get("both") or next(iter(found.perplexities.values()))
    of_directions = ", ".join(
        f"{name} {value:,.1f}" for name, value in found.perplexities.items() if name != "both"
    )
    what = f"{text}: {counted(len(found.sentences), 'sentence')}"
    if is_cut:
        what = f"the first {len(found.sentences):,} sentences of {text}"
    title = f"How {model} is surprised by {text}"
    data = {
        "title": f"Perplexity {overall:,.1f} ({of_directions})",
        "source": f"{model} on {what}, {counted(n_words, 'word')}",
        "note": "The stronger the colour, the more surprising the word: its perplexity is 1 over "
        "the probability that the model gives it, forward after all words before it in its "
        "sentence, backward before all words after it; the mean is the geometric one. Underlined: "
        "not in the vocabulary.",
        "directions": found.directions,
        "sentences": [
            [
                {"text": word, "unknown": unknown, "bits": [round(each, _DIGITS) for each in bits]}
                for word, unknown, bits in zip(sentence, unknowns, zip(*of_directions_))
            ]
            for sentence, unknowns, of_directions_ in zip(
                found.sentences, found.unknown, found.bits
            )
        ],
    }
    write_page(output, "surprise.html", title, data, None)


def first_sentences(sentences: Iterable[List[str]]) -> List[List[str]]:
    """Return the sentences that have words, at most one more than are shown."""
    found: List[List[str]] = []
    for sentence in sentences:
        if sentence:
            found.append(sentence)
        if len(found) > MAX_SENTENCES:
            break
    return found
