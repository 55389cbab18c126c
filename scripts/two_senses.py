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
        # The sentences in a column beside their points, from the highest point to the lowest.
        side = 1 if x.mean() > 0 else -1
        edge = side * ((side * x).max() + 0.12 * np.ptp(points[:, 0]))
        line = {"arrowstyle": "-", "color": color, "lw": 0.4, "relpos": ((1 - side) / 2, 0.5)}
        for height, i in zip(np.linspace(0.9, 0.1, len(group)), np.argsort(-y)):
            axes.annotate(
                group[i],
                (x[i], y[i]),
                (edge, height),
                textcoords=("data", "axes fraction"),
                color=color,
                va="center",
                ha="left" if side > 0 else "right",
                arrowprops=line,
            )
    axes.set_title(f'Vectors of "{WORD}" in twelve sentences (tiny, second LSTM layer)')
    axes.axis("off")
    axes.margins(x=0.65, y=0.1)
    figure.legend(loc="outside lower center", ncols=2)
    figure.savefig(sys.argv[1], metadata={"Date": None})


if __name__ == "__main__":
    main()
