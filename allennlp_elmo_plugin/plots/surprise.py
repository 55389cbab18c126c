"""How surprising each word of a text is for a language model, in both directions."""

import html
import math
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence

from allennlp_elmo_plugin.embedding.corpus_embedder import batches_by_length
from allennlp_elmo_plugin.files.json_file import shown
from allennlp_elmo_plugin.files.whole import whole_file
from allennlp_elmo_plugin.models.pretrained import PretrainedLanguageModel
from allennlp_elmo_plugin.models.sentence_probabilities import (
    perplexity_of,
    sentence_log_probabilities,
)
from allennlp_elmo_plugin.progress import counted, step_bar

MAX_SENTENCES = 1000
"""Of a longer text, so many sentences from its start are shown."""

_BATCH_TOKENS = 1024

_MOST_BITS = math.log2(10_000)
"""The surprise of words with the strongest colour."""

_PAGE = """\
<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
body {{ font: 16px/1.7 sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em; }}
span {{ background: rgba(214, 94, 40, calc(var(--bits) * 0.85)); border-radius: 3px; }}
.unknown {{ text-decoration: underline; }}
</style>
</head>
<body>
<h1>{heading}</h1>
<p>{source}</p>
<p>The stronger the colour, the more surprising the word, in the mean of the directions. The mouse
over a word shows its perplexity: 1 over the probability that the model gives it, forward after all
words before it in its sentence, backward before all words after it. Underlined words are not in the
vocabulary.</p>
{text}
</body>
</html>
"""


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
        raise ValueError(
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
            words = [sentences[i] for i in batch]
            found = sentence_log_probabilities(bilm, softmax, vocabulary, words)
            for row, i in enumerate(batch):
                bits[i] = []
                for direction, values in found.items():
                    of_sentence = values[row, : len(sentences[i]) + 1].double()
                    if not bool(of_sentence.isfinite().all()):
                        raise ValueError(
                            f"{model.source}: gives {shown(' '.join(sentences[i]))!r} no finite "
                            "probability; did its training diverge? Give another model"
                        )
                    totals[direction] -= of_sentence.sum().item()
                    # Not the sentence's end, and not its start.
                    of_words = of_sentence[:-1] if direction == "forward" else of_sentence[1:]
                    bits[i].append((of_words / -math.log(2)).abs().tolist())  # not -0
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
    n_sentences, n_words = len(found.sentences), sum(map(len, found.sentences))
    what = f"{text}: {counted(n_sentences, 'sentence')}"
    if is_cut:
        what = f"the first {n_sentences:,} sentences of {text}"
    values = [f"{name} {value:,.1f}" for name, value in found.perplexities.items()]
    lines = [
        " ".join(
            _word(word, is_unknown, dict(zip(found.directions, of_word)))
            for word, is_unknown, of_word in zip(sentence, unknown, zip(*bits))
        )
        for sentence, unknown, bits in zip(found.sentences, found.unknown, found.bits)
    ]
    page = _PAGE.format(
        title=html.escape(f"How {model} is surprised by {text}"),
        heading=html.escape(f"Perplexity: {', '.join(values)}"),
        source=html.escape(f"{model} on {what}, {counted(n_words, 'word')}"),
        text="\n".join(f"<p>{line}</p>" for line in lines),
    )
    with whole_file(output) as staged:
        # Only a file name may have what UTF-8 can't express.
        Path(staged).write_text(page, encoding="utf-8", errors="xmlcharrefreplace")


def _word(word: str, is_unknown: bool, bits: Dict[str, float]) -> str:
    """Return a word as an element whose colour and title are its surprise."""
    mean = sum(bits.values()) / len(bits)
    shares = {**bits, "mean": mean} if len(bits) > 1 else bits
    title = ", ".join(f"{name} 1 in {2 ** min(each, 99):,.4g}" for name, each in shares.items())
    return (
        f'<span title="{title}" style="--bits: {min(1, mean / _MOST_BITS):.3f}"'
        f"{' class=unknown' if is_unknown else ''}>{html.escape(word)}</span>"
    )


def first_sentences(sentences: Iterable[List[str]]) -> List[List[str]]:
    """Return the sentences that have words, at most one more than are shown."""
    found: List[List[str]] = []
    for sentence in sentences:
        if sentence:
            found.append(sentence)
        if len(found) > MAX_SENTENCES:
            break
    return found
