"""How surprising each word of a text is for a language model, in both directions."""

import html
import math
from collections.abc import Sequence
from pathlib import Path

from allennlp_elmo_plugin.analysis.sentence_probabilities import (
    perplexity_of,
    sentence_log_probabilities,
)
from allennlp_elmo_plugin.embedding.batches import batches_by_length
from allennlp_elmo_plugin.files.whole import whole_file
from allennlp_elmo_plugin.pretrained.language_model import PretrainedLanguageModel
from allennlp_elmo_plugin.progress import step_bar

_MOST_BITS = math.log2(10_000)  # the surprise of words with the strongest colour

_PAGE = """\
<!DOCTYPE html>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Surprise: {title}</title>
<style>
body {{ font: 16px/1.7 sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em; }}
span {{ background: rgba(214, 94, 40, calc(var(--bits) * 0.85)); border-radius: 3px; }}
.unknown {{ background: none; text-decoration: underline; }}
</style>
<h1>Perplexity: {heading}</h1>
<p>{title}</p>
<p>The stronger the colour, the more surprising the word, in the mean of the directions. The mouse
over a word shows its perplexity: 1 over its probability, forward after the words before it in its
sentence, backward before those after it. Underlined words are not in the vocabulary: they have no
colour, since their perplexity is that of any unknown word.</p>
{text}
"""


def write_surprise(
    model: PretrainedLanguageModel,
    sentences: Sequence[list[str]],
    output: str,
    title: str,
    device: str = "cpu",
) -> dict[str, float]:
    """
    Write the sentences as a page with the surprise of each word, as `allennlp predict` computes it.
    Return the perplexity of each direction; of several, also the geometric mean, `both`.
    """
    if model.softmax is None or model.words is None:
        raise ValueError(
            f"{model.source}: has no softmax, with which a language model predicts words; give "
            "model.tar.gz, the folder of a run, or an export with softmax.hdf5 and the vocabulary"
        )
    bilm, softmax = model.bilm.to(device).eval(), model.softmax.to(device).eval()
    vocabulary = {word: index for index, word in enumerate(model.words)}
    lines = [""] * len(sentences)
    losses = dict.fromkeys(model.options.directions, 0.0)  # nats
    lengths = [len(sentence) for sentence in sentences]
    n_predicted = sum(lengths) + len(sentences)
    with step_bar("predicting", len(sentences), " sentences") as update:
        for batch in batches_by_length(lengths, 1024):
            words = [sentences[i] for i in batch]
            by_direction = sentence_log_probabilities(bilm, softmax, vocabulary, words)
            for row, i in enumerate(batch):
                bits = {}
                for direction, values in by_direction.items():
                    nats = -values[row, : lengths[i] + 1].double()
                    losses[direction] += nats.sum().item() / n_predicted
                    # without the end of the sentence, or its start
                    of_words = nats[:-1] if direction == "forward" else nats[1:]
                    bits[direction] = (of_words / math.log(2)).abs().tolist()  # not -0
                lines[i] = _line(sentences[i], bits, vocabulary)
            update(len(batch))
    if len(losses) > 1:
        losses["both"] = sum(losses.values()) / len(losses)
    perplexities = {name: perplexity_of(loss) for name, loss in losses.items()}
    figures = ", ".join(f"{name} {value:,.1f}" for name, value in perplexities.items())
    page = _PAGE.format(title=html.escape(title), heading=figures, text="\n".join(lines))
    with whole_file(output) as staged:
        Path(staged).write_text(page, encoding="utf-8", errors="xmlcharrefreplace")
    return perplexities


def _line(words: list[str], bits: dict[str, list[float]], vocabulary: dict[str, int]) -> str:
    """Return a sentence as a paragraph, each word with its surprise as its colour and title."""
    spans = []
    for word, *of_word in zip(words, *bits.values()):
        mean = sum(of_word) / len(of_word)
        named = zip([*bits, "mean"], [*of_word, mean])
        title = ", ".join(f"{name} 1 in {2 ** min(n, 99):,.4g}" for name, n in named)
        strength = f"--bits: {min(1, mean / _MOST_BITS):.3f}"
        mark = ""
        if word not in vocabulary:
            mark, title = " class=unknown", f"any unknown word: {title}"
        spans.append(f'<span title="{title}" style="{strength}"{mark}>{html.escape(word)}</span>')
    return f"<p>{' '.join(spans)}</p>"
