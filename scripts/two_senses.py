"""
Draw the picture of the README: the word "play" in twelve sentences, each placed by its vector.

    python scripts/two_senses.py docs/pictures/two_senses.svg

The vectors are those of the second LSTM layer of `tiny`, projected to the two directions in which
they differ most. Needs matplotlib: `pip install 'allennlp_elmo_plugin[plot]'`.
"""

import sys

import matplotlib
import numpy as np
from sklearn.decomposition import PCA

from allennlp_elmo_plugin import ElmoEmbedder

WORD = "play"
SENSES = {
    "a game": [
        "The children play in the garden .",
        "The boys play with a ball .",
        "We used to play cards .",
        "They play on the beach .",
        "She taught us to play chess .",
        "You must not play with fire .",
    ],
    "on the stage": [
        "The play was written in 1601 .",
        "She saw the play at the theatre .",
        "The first act of the play is short .",
        "His new play was a success .",
        "The critics praised the play .",
        "He wrote a play in five acts .",
    ],
}


def main() -> None:
    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.hashsalt": WORD, "font.size": 8})
    from matplotlib import pyplot

    embedder = ElmoEmbedder("tiny")
    sentences = [sentence.split() for group in SENSES.values() for sentence in group]
    vectors = [
        embedder.embed_sentence(sentence)[2, sentence.index(WORD)] for sentence in sentences
    ]  # (dim,) each
    points = PCA(2).fit_transform(np.stack(vectors))  # (n_sentences, 2)
    figure, axes = pyplot.subplots(figsize=(7.5, 3.2), layout="constrained")
    start = 0
    for (sense, group), color in zip(SENSES.items(), ("#c65d21", "#2166ac")):
        x, y = points[start : start + len(group)].T
        start += len(group)
        axes.scatter(x, y, color=color, label=sense, s=18)
        # Towards the middle, and not over each other.
        side = -1 if x.mean() > 0 else 1
        lowest = -np.inf
        for i in np.argsort(y):
            lowest = max(y[i], lowest + 0.06 * np.ptp(points[:, 1]))
            axes.annotate(
                group[i],
                (x[i], lowest),
                (5 * side, 0),
                textcoords="offset points",
                color=color,
                va="center",
                ha="right" if side < 0 else "left",
            )
    axes.set_title(f'Vectors of "{WORD}" in twelve sentences (tiny, second LSTM layer)')
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(x=0.06, y=0.1)
    axes.legend(title="meaning", loc="upper right")
    figure.savefig(sys.argv[1], metadata={"Date": None})


if __name__ == "__main__":
    main()
