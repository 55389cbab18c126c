"""How surprising each word of a text is for a language model, in both directions."""

import html
import math
from collections.abc import Sequence

from allennlp_elmo_plugin.analysis.figures import GREY, figure, is_page
from allennlp_elmo_plugin.analysis.sentence_probabilities import (
    parts_that_predict,
    perplexity_of,
    score_sentences,
)
from allennlp_elmo_plugin.files.atomic import write_text
from allennlp_elmo_plugin.pretrained.language_model import PretrainedLanguageModel
from allennlp_elmo_plugin.progress import step_bar

_MOST_BITS = math.log2(10_000)  # the surprise of words with the strongest colour
_INK = "#22262b"
_COLUMNS = 96  # characters in a line of a figure

# A word, the strength of its colour from 0 to 1, whether it is known, and its perplexities
Word = tuple[str, float, bool, str]

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
    Write the sentences as a page (.html) or figure with the surprise of each word, as `allennlp
    predict` computes it. Return the perplexity of each direction; of several, also the geometric
    mean, `both`.
    """
    parts = parts_that_predict(model, device)
    vocabulary = parts[-1]
    lines: list[list[Word]] = [[]] * len(sentences)
    losses = dict.fromkeys(model.options.directions, 0.0)  # nats
    n_predicted = sum(map(len, sentences)) + len(sentences)
    with step_bar("predicting", len(sentences), " sentences") as update:
        for i, by_direction in score_sentences(*parts, sentences):
            bits = {}
            for direction, values in by_direction.items():
                losses[direction] -= values.sum().item() / n_predicted
                # without the end of the sentence, or its start
                of_words = values[:-1] if direction == "forward" else values[1:]
                bits[direction] = (of_words / math.log(2)).abs().tolist()
            lines[i] = _line(sentences[i], bits, vocabulary)
            update(1)
    if len(losses) > 1:
        losses["both"] = sum(losses.values()) / len(losses)
    perplexities = {name: perplexity_of(loss) for name, loss in losses.items()}
    figures = ", ".join(f"{name} {value:,.1f}" for name, value in perplexities.items())
    if not is_page(output):
        _draw(lines, output, f"Perplexity: {figures}", title)
        return perplexities
    text = "\n".join(f"<p>{' '.join(map(_span, line))}</p>" for line in lines)
    page = _PAGE.format(title=html.escape(title), heading=figures, text=text)
    write_text(output, page, errors="xmlcharrefreplace")
    return perplexities


def _line(words: list[str], bits: dict[str, list[float]], vocabulary: dict[str, int]) -> list[Word]:
    """Return the words of a sentence with their surprise in bits by direction."""
    line = []
    for word, *of_word in zip(words, *bits.values()):
        mean = sum(of_word) / len(of_word)
        named = zip([*bits, "mean"], [*of_word, mean])
        title = ", ".join(f"{name} 1 in {2 ** min(n, 99):,.4g}" for name, n in named)
        line.append((word, min(1, mean / _MOST_BITS), word in vocabulary, title))
    return line


def _span(of_word: Word) -> str:
    word, strength, is_known, title = of_word
    mark, title = ("", title) if is_known else (" class=unknown", f"any unknown word: {title}")
    style = f"--bits: {strength:.3f}"
    return f'<span title="{title}" style="{style}"{mark}>{html.escape(word)}</span>'


def _draw(lines: list[list[Word]], output: str, *headings: str) -> None:
    """Draw the sentences as a figure, in letters of one width."""
    with figure(output, 8, 1, transparent=False) as axes:
        for number, heading in enumerate(headings):
            axes.text(0, 1 + number, heading[:_COLUMNS], color=_INK)
        row = 3.5
        for line in lines:
            column = 0
            for word, strength, is_known, _ in line:
                if column and column + len(word) > _COLUMNS:
                    column, row = 0, row + 1
                strength *= 0.85 * is_known
                box = {"color": (0.84, 0.37, 0.16, strength), "lw": 0, "pad": 1}
                style = {"family": "monospace", "size": 9.5, "color": _INK}
                axes.text(column, row, word, bbox=box, **style)
                if not is_known:
                    axes.plot([column, column + len(word)], [row + 0.2] * 2, GREY, lw=1)
                column += len(word) + 1
            row += 1.5
        axes.set_axis_off()
        axes.set(xlim=(-1, _COLUMNS + 1), ylim=(row, 0), position=(0, 0, 1, 1))
        axes.figure.set(layout_engine="none", size_inches=(8, row / 5))
