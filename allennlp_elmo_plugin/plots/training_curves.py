"""The perplexities of training runs, epoch by epoch, and a figure of them."""

import json
import math
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from allennlp_elmo_plugin.files.whole import whole_file

ENDINGS = (".svg", ".png", ".pdf")

STYLE: Dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "elmo-plot",
    "text.parse_math": False,  # A folder may have a dollar in its name.
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), "#7b8490"),
    **dict.fromkeys(("xtick.color", "ytick.color"), "#7b8490"),
}
"""Settings of matplotlib for figures on any background, the same each time."""

# The perplexities that are drawn, with their line styles.
_CURVES = {
    "training": ":",
    "validation": "-",
    "validation_forward": "--",
    "validation_backward": "-.",
}


class Run(NamedTuple):
    """A run's folder and its curves: points of epochs trained and perplexity."""

    name: str
    curves: Dict[str, List[Tuple[float, float]]]


def read_run(folder: str) -> Run:
    """Read the finite perplexities in the folder of a run, from its `metrics_epoch_N.json`."""
    epoch = 0
    curves: Dict[str, List[Tuple[float, float]]] = {}
    while (file := Path(folder) / f"metrics_epoch_{epoch}.json").exists():
        metrics = json.loads(file.read_text(encoding="utf-8"))
        for name in _CURVES:
            # That of training is the mean of the epoch; fine-tuning has an initial one.
            points = {f"{name}_perplexity": epoch + (0.5 if name == "training" else 1)}
            if epoch == 0:
                points = {f"initial_{name}_perplexity": 0, **points}
            for key, x in points.items():
                if 0 < metrics.get(key, 0) < math.inf:
                    curves.setdefault(name, []).append((x, metrics[key]))
        epoch += 1
    if not curves:
        raise ValueError(f"{folder}: there is no finite perplexity in metrics_epoch_N.json")
    return Run(folder, curves)


def draw_curves(runs: Sequence[Run], output: str) -> None:
    """Draw a figure of all runs to a file, whose ending says in which format."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(8.5, 4), layout="constrained")
        axes = figure.subplots()
        for number, run in enumerate(runs):
            for name, style in _CURVES.items():
                if name in run.curves:
                    x, y = zip(*run.curves[name])
                    label = f"{run.name} {name.replace('validation_', '')} {y[-1]:.4g}"
                    axes.plot(x, y, style, color=f"C{number}", marker=".", label=label)
        axes.set(ylabel="perplexity", yscale="log", xlabel="epochs")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.legend()
        validation = [(y, x, run.name) for run in runs for x, y in run.curves.get("validation", [])]
        if validation:
            lowest, epochs, best = min(validation)
            axes.set_title(
                f"Lowest validation perplexity: {lowest:.4g} after {epochs:g} epochs ({best})"
            )
        metadata = {"Date": None} if output.lower().endswith(".svg") else None
        with whole_file(output) as staged:
            figure.savefig(staged, transparent=True, dpi=160, metadata=metadata)
