"""
Draw the pictures of the documentation: `make pictures`.

    python scripts/pictures.py DEMO docs/pictures

DEMO is the folder of `make demo`. Needs matplotlib.
"""

import re
import textwrap
from itertools import takewhile
from pathlib import Path

import numpy as np

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.analysis.figures import figure
from allennlp_elmo_plugin.analysis.surprise import write_surprise
from allennlp_elmo_plugin.analysis.training_curves import draw_curves, read_run
from allennlp_elmo_plugin.analysis.word_map import make_map, write_figure
from allennlp_elmo_plugin.exits import run_script
from allennlp_elmo_plugin.plugin.benchmark.report import draw_bars, draw_layer_weights
from allennlp_elmo_plugin.pretrained.file_names import CARD_FILE
from allennlp_elmo_plugin.pretrained.find_model import BUNDLED_MODEL
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained

ROOT = Path(__file__).resolve().parents[1]
RESULTS, SPEED = ROOT / "docs" / "results.md", ROOT / "docs" / "speed.md"
CARD = BUNDLED_MODEL / CARD_FILE

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


def read_table(start: str, page: Path = RESULTS) -> list[dict[str, str]]:
    """Return the rows of the first table of a page whose first line starts so."""
    lines = iter(page.read_text(encoding="utf-8").replace("`", "").splitlines())
    header = next(line for line in lines if line.startswith(start))
    next(lines)
    rows = takewhile(lambda line: line.startswith("|"), lines)
    columns, *table = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in (header, *rows)
    )
    return [dict(zip(columns, cells)) for cells in table]


def draw_results(folder: Path) -> None:
    """Draw the scores of the tasks, and the weights of their layers."""
    tasks = read_table("| task | score (test) |")
    models = ("baseline", "word vectors", "+ ELMo")
    with figure(folder / "tasks.svg", 9, 6, 2) as both:
        half = (len(tasks) + 1) // 2
        for axes, row in zip(both, (tasks[:half], tasks[half:])):
            # Each cell is a mean and a deviation.
            numbers = {m: [re.findall(r"[\d.]+", task[m]) for task in row] for m in models}
            means, deviations = (
                {m: [float(pair[i]) for pair in pairs] for m, pairs in numbers.items()}
                for i in range(2)
            )
            names = [textwrap.fill(task["task"], 16, break_on_hyphens=False) for task in row]
            draw_bars(axes, names, means, deviations)
            axes.margins(y=0.1)
            axes.set_ylabel("test set, %")
    weights = {}
    for task, place, *mix in (row.values() for row in read_table("| task | place of ELMo |")):
        weights[f"{task}, {place}"] = list(map(float, mix))
    draw_layer_weights(weights, folder / "layer_weights.svg")


def draw_speed(folder: Path) -> None:
    """Draw the words per second of this package and of AllenNLP, both in float32."""
    rows = [
        row
        for row in read_table("| workload | model |", SPEED)
        if not row["workload"].endswith(("bfloat16", "int8"))
    ]
    with figure(folder / "speed.svg", 8, 6, 2) as both:
        for axes, model in zip(both, ("small", "original")):
            of_model = [row for row in rows if row["model"] == model]
            for offset, name in ((-0.2, "this package"), (0.2, "AllenNLP")):
                speeds = [int(row[f"words/s, {name}"].replace(",", "")) for row in of_model]
                bars = axes.barh(np.arange(len(speeds)) + offset, speeds, 0.4, label=name)
                axes.bar_label(bars, fmt="{:,.0f}", fontsize=8, padding=2)
            axes.set_yticks(range(len(of_model)), [row["workload"] for row in of_model])
            axes.invert_yaxis()
            axes.margins(x=0.1)
            axes.set_title(f"{model}: words per second on two CPU cores", fontsize="medium")
        axes.legend(loc="lower right")


def draw_probes(folder: Path) -> None:
    """Draw the accuracy of each layer of `tiny` and of random weights in both probes."""
    rows = read_table("| | parts of speech", CARD)
    layers = ["token layer", "LSTM 1", "LSTM 2"]
    with figure(folder / "probes.svg", 8, 6, 2) as both:
        for axes, task in zip(both, list(rows[0])[1:]):
            for row, style in zip(rows, (":", "s--", "o-")):
                name = row[""].partition(":")[0].replace("this model", "tiny")
                accuracies = [float(number) for number in row[task].split(", ")]
                axes.plot(layers, accuracies * (3 // len(accuracies)), style, label=name)
            axes.set(ylabel=f"{task.partition(',')[0]}, %", ylim=(0, 100))
        axes.legend(loc="lower right")


def draw_senses(folder: Path) -> None:
    """Draw "play" in twelve sentences, each placed by its vector in the top layer of `tiny`."""
    sentences = [sentence.split() for group in SENSES.values() for sentence in group]
    labels = [sense for sense, group in SENSES.items() for _ in group]
    found = make_map(ElmoEmbedder("tiny"), "play", sentences, labels=labels)
    write_figure(found, str(folder / "two_senses.svg"), "twelve sentences", "tiny")


def read_text(demo: Path) -> list[list[str]]:
    """Return the text of the demo, the held-out part last."""
    return [
        line.split()
        for name in ("train", "validation", "heldout")
        for line in (demo / "corpus" / f"{name}.txt").read_text("utf-8").splitlines()
    ]


def draw_map(demo: Path, folder: Path) -> None:
    """Draw "set" in the text of the demo, by its vectors in `tiny`."""
    found = make_map(ElmoEmbedder("tiny"), "set", read_text(demo), n_groups=4)
    write_figure(found, str(folder / "word_map.svg"), "the Python language reference", "tiny")


def draw_surprise(demo: Path, folder: Path) -> None:
    """Colour the last sentences of the held-out text by the perplexities of the demo's model."""
    title = "the model of the demo on held-out text"
    model = read_pretrained(str(demo / "elmo"))
    write_surprise(model, read_text(demo)[-12:], str(folder / "surprise.png"), title)


def main(demo: Path, output: Path) -> None:
    draw_results(output)
    draw_speed(output)
    draw_probes(output)
    draw_senses(output)
    draw_curves({"Demo": read_run(str(demo / "elmo"))}, str(output / "training_curves.svg"))
    draw_map(demo, output)
    draw_surprise(demo, output)


if __name__ == "__main__":
    run_script(main, __doc__)
