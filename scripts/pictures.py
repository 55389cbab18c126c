"""
Draw the pictures of the documentation: `make pictures`.

    python scripts/pictures.py DEMO docs/pictures

DEMO is the folder of `make demo`. Needs matplotlib, plotly, playwright and Chromium.
"""

import argparse
import re
import runpy
import shutil
import sys
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Dict, List, NamedTuple, Tuple

from matplotlib import rc_context
from matplotlib.figure import Figure

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.benchmark.report import draw_bars, draw_layer_weights
from allennlp_elmo_plugin.files.text_lines import open_lines
from allennlp_elmo_plugin.files.whole import whole_file
from allennlp_elmo_plugin.models.pretrained import read_pretrained
from allennlp_elmo_plugin.plots.surprise import measure_surprise, write_surprise
from allennlp_elmo_plugin.plots.training_curves import STYLE, draw_curves, read_run
from allennlp_elmo_plugin.plots.word_map import make_map, write_map

ROOT = Path(__file__).resolve().parent.parent
WORD = "set"
N_SENTENCES = 14
TASKS_A_ROW = 5


class Task(NamedTuple):
    """A row of the table of tasks: for each model the mean and the standard deviation."""

    name: str
    score: str
    models: Dict[str, Tuple[float, float]]


def read_table(results: str, start: str) -> List[Dict[str, str]]:
    """Return the rows of the first table of docs/results.md whose first line starts so."""
    lines = iter(results.splitlines())
    header = next(line for line in lines if line.startswith(start))
    next(lines)
    rows = takewhile(lambda line: line.startswith("|"), lines)
    columns, *table = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in (header, *rows)
    )
    return [dict(zip(columns, cells)) for cells in table]


def read_tasks(results: str) -> List[Task]:
    """Read the first table of tasks in docs/results.md."""
    tasks = []
    for cells in read_table(results, "| task | score (test) |"):
        models = {}
        for model in ("baseline", "word vectors", "+ ELMo"):
            mean, deviation = map(float, re.findall(r"[\d.]+", cells[model]))
            models[model] = mean, deviation
        tasks.append(Task(cells["task"], cells["score (test)"], models))
    return tasks


def read_layer_weights(results: str) -> Dict[str, Dict[str, List[float]]]:
    """Read the table of the layers' weights in docs/results.md: by place, tasks with their mix."""
    places: Dict[str, Dict[str, List[float]]] = {}
    for row in read_table(results, "| task | place of ELMo |"):
        task, place, *mix = row.values()
        places.setdefault(place, {})[task] = [float(weight) for weight in mix]
    return places


def draw_tasks(tasks: List[Task], output: Path) -> None:
    """Draw the scores of the tasks as bars, with their standard deviations; five tasks a row."""
    rows = [tasks[start : start + TASKS_A_ROW] for start in range(0, len(tasks), TASKS_A_ROW)]
    with rc_context(STYLE):
        figure = Figure(figsize=(9, 0.4 + 2.8 * len(rows)), layout="constrained")
        for axes, row in zip(figure.subplots(len(rows), squeeze=False)[:, 0], rows):
            names = [f"{task.name}\n{task.score}" for task in row]
            values, deviations = (
                {model: [task.models[model][i] for task in row] for model in tasks[0].models}
                for i in range(2)
            )
            draw_bars(axes, names, values, deviations)
            axes.set_xlim(-0.55, TASKS_A_ROW - 0.45)
            axes.set_ylabel("test set, %")
        figure.axes[0].legend(loc="upper right")
        figure.suptitle(
            "Tasks with nothing pretrained, with word vectors, and with ELMo of the same text"
        )
        save(figure, output)


def save(figure: Figure, output: Path) -> None:
    with whole_file(output) as staged:
        figure.savefig(staged, transparent=True, metadata={"Date": None})


def read_sentences(path: Path) -> List[List[str]]:
    with open_lines(path) as lines:
        return [line.words for line in lines]


def take_pictures(demo: Path, output: Path) -> None:
    """Make both pages and take pictures of them in a browser."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        pages = Path(folder)
        files = [demo / "corpus" / f"{name}.txt" for name in ("train", "validation", "heldout")]
        text = [sentence for file in files for sentence in read_sentences(file)]
        found = make_map(ElmoEmbedder("tiny"), WORD, text, n_groups=4)
        write_map(found, str(pages / "word_map.html"), "the Python language reference", "tiny")
        heldout = [each for each in read_sentences(files[-1]) if each]
        # The numbers are those of any text; the first sentences fit into the picture.
        model = read_pretrained(str(demo / "model" / "model.tar.gz"))
        surprise = measure_surprise(model, heldout[:N_SENTENCES])
        write_surprise(
            surprise, str(pages / "surprise.html"), "held-out text", "the model of the demo", True
        )
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 760})
        for name in ("word_map", "surprise"):
            page.goto((pages / f"{name}.html").as_uri())
            page.wait_for_timeout(1500)
            if name == "word_map":
                box = page.locator(".point").last.bounding_box()
                page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
                page.wait_for_timeout(500)
            page.screenshot(path=output / f"{name}.png", full_page=True)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("demo", type=Path, metavar="DEMO", help="folder of the demo")
    parser.add_argument("output", type=Path, metavar="OUTPUT_DIR", help="folder of the pictures")
    args = parser.parse_args()
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    draw_tasks(read_tasks(results), args.output / "tasks.svg")
    with rc_context(STYLE):
        save(draw_layer_weights(read_layer_weights(results)), args.output / "layer_weights.svg")
    run = read_run(str(args.demo / "model"))._replace(name="Demo")
    draw_curves([run], str(args.output / "training_curves.svg"))
    take_pictures(args.demo, args.output)
    sys.argv[1:] = [str(args.output / "two_senses.svg")]
    runpy.run_path(str(ROOT / "scripts" / "two_senses.py"), run_name="__main__")


if __name__ == "__main__":
    main()
