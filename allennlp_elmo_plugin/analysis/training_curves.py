"""The perplexities of training runs, epoch by epoch, and a figure of them."""

import json
import math
from pathlib import Path

from allennlp_elmo_plugin.analysis.figures import figure

Curves = dict[str, list[tuple[float, float]]]
"""By the kind of perplexity, points of epochs trained and perplexity."""

_LINE_STYLES = {
    "training": ":",
    "validation": "-",
    "validation_forward": "--",
    "validation_backward": "-.",
}


def read_run(folder: str) -> Curves:
    """Read the finite perplexities in the folder of a run, from its `metrics_epoch_N.json`."""
    epoch = 0
    curves: Curves = {}
    while (file := Path(folder) / f"metrics_epoch_{epoch}.json").exists():
        metrics = json.loads(file.read_text(encoding="utf-8"))
        for name in _LINE_STYLES:
            # That of training is the mean of the epoch; fine-tuning has an initial one.
            points = {f"{name}_perplexity": epoch + (0.5 if name == "training" else 1)}
            if epoch == 0:
                points = {f"initial_{name}_perplexity": 0, **points}
            for key, x in points.items():
                if math.isfinite(metrics.get(key, math.nan)):
                    curves.setdefault(name, []).append((x, metrics[key]))
        epoch += 1
    if not curves:
        raise ValueError(f"{folder}: there is no finite perplexity in metrics_epoch_N.json")
    return curves


def draw_curves(runs: dict[str, Curves], output: str) -> None:
    """Draw a figure of runs, by their names, to a file, whose ending says in which format."""
    with figure(output, 8.5, 4) as drawn:
        axes = drawn.subplots()
        lowest = []
        for number, (run, curves) in enumerate(runs.items()):
            for name, points in curves.items():
                label = f"{run} {name.replace('validation_', '')} {points[-1][1]:.4g}"
                (line,) = axes.plot(*zip(*points), _LINE_STYLES[name], label=label)
                line.set(color=f"C{number}", marker=".")
            lowest += [(y, x, run) for x, y in curves.get("validation", [])]
        if lowest:
            y, x, run = min(lowest)
            axes.set_title(f"Lowest validation perplexity: {y:.4g} after {x:g} epochs ({run})")
        axes.set(ylabel="perplexity", yscale="log", xlabel="epochs")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.legend()
