"""
Draw the pictures of the documentation: `make pictures`.

    python scripts/pictures.py DEMO docs/pictures

DEMO is the folder of `make demo`. Needs matplotlib, plotly and Chromium.
"""

import re
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.analysis.figures import figure
from allennlp_elmo_plugin.analysis.surprise import write_surprise
from allennlp_elmo_plugin.analysis.training_curves import draw_curves, read_run
from allennlp_elmo_plugin.analysis.word_map import make_map, write_figure, write_map
from allennlp_elmo_plugin.plugin.benchmark.report import draw_bars, draw_layer_weights
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results.md"

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


def read_table(start: str) -> list[dict[str, str]]:
    """Return the rows of the first table of docs/results.md whose first line starts so."""
    lines = iter(RESULTS.read_text(encoding="utf-8").splitlines())
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
            draw_bars(
                axes, ["\n(".join(task["task"].split(" (")) for task in row], means, deviations
            )
            axes.set_ylabel("test set, %")
    weights = {}
    for task, place, *mix in (row.values() for row in read_table("| task | place of ELMo |")):
        weights[f"{task}, {place}"] = list(map(float, mix))
    draw_layer_weights(weights, folder / "layer_weights.svg")


def draw_senses(folder: Path) -> None:
    """Draw "play" in twelve sentences, each placed by its vector in the top layer of `tiny`."""
    sentences = [sentence.split() for group in SENSES.values() for sentence in group]
    labels = [sense for sense, group in SENSES.items() for _ in group]
    found = make_map(ElmoEmbedder("tiny"), "play", sentences, labels=labels)
    write_figure(found, str(folder / "two_senses.svg"), "twelve sentences", "tiny")


def take_pictures(demo: Path, output: Path) -> None:
    """Make both pages and take pictures of them in Chromium."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)))
    text = [
        line.split()
        for name in ("train", "validation", "heldout")
        for line in (demo / "corpus" / f"{name}.txt").read_text("utf-8").splitlines()
    ]
    with TemporaryDirectory() as folder:
        pages = Path(folder)
        found = make_map(ElmoEmbedder("tiny"), "set", text, n_groups=4)
        write_map(found, str(pages / "word_map.html"), "the Python language reference", "tiny")
        model = read_pretrained(str(demo / "elmo"))
        title = "the model of the demo on held-out text"
        write_surprise(model, text[-12:], str(pages / "surprise.html"), title)
        for name, height in {"word_map": 760, "surprise": 890}.items():
            flags = f"--headless --no-sandbox --hide-scrollbars --window-size=1000,{height}"
            picture = f"--screenshot={output.absolute() / name}.png"
            page = (pages / f"{name}.html").as_uri()
            subprocess.run(
                [browser, *flags.split(), picture, page], check=True, stderr=subprocess.DEVNULL
            )


def main() -> None:
    demo, output = map(Path, sys.argv[1:])
    draw_results(output)
    draw_senses(output)
    draw_curves({"Demo": read_run(str(demo / "elmo"))}, str(output / "training_curves.svg"))
    take_pictures(demo, output)


if __name__ == "__main__":
    main()
