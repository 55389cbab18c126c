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

_PANELS = {
    "Perplexity": {"training": ":", "validation": "-"},
    "Validation perplexity of each direction": {
        "validation_forward": "-",
        "validation_backward": "--",
    },
}
"""By title of the axes, the curves with their line styles."""

Curve = List[Tuple[float, float]]
"""Points: how many epochs were trained, and a perplexity."""


class Run(NamedTuple):
    """
    The curves of a run.

    # Parameters

    name : `str`
        The end of its path.
    curves : `Dict[str, Curve]`
        `training`, `validation`, `validation_forward` and `validation_backward`: those that the
        folder has.
    """

    name: str
    curves: Dict[str, Curve]


def read_run(folder: str) -> Run:
    """
    Read the finite perplexities in the folder of a run, from its `metrics_epoch_N.json`.

    # Raises

    `ValueError` if there is none, or a file can't be read.
    """
    path = Path(folder)
    curves: Dict[str, Curve] = {}
    epoch = 0
    while (file := path / f"metrics_epoch_{epoch}.json").exists():
        try:
            metrics = json.loads(file.read_text(encoding="utf-8"))
            for name in (name for panel in _PANELS.values() for name in panel):
                # That of training is the mean of the epoch.
                points = [(f"{name}_perplexity", epoch + (0.5 if name == "training" else 1))]
                if epoch == 0:  # of fine-tuning
                    points.insert(0, (f"initial_{name}_perplexity", 0))
                for key, x in points:
                    if 0 < float(metrics.get(key, 0)) < math.inf:
                        curves.setdefault(name, []).append((x, metrics[key]))
        except (ValueError, TypeError, AttributeError) as error:
            message = f"{file}: not a file of metrics as training writes it ({error})"
            raise ValueError(message) from error
        epoch += 1
    if not curves:
        raise ValueError(
            f"{folder}: not the folder of a language model's training: there is no finite "
            "perplexity in metrics_epoch_N.json"
        )
    return Run("/".join(path.parts[-2:]), curves)


def draw_curves(runs: Sequence[Run], output: str) -> None:
    """Draw a figure of all runs to a file, whose ending says in which format."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        panels = {
            title: styles
            for title, styles in _PANELS.items()
            if any(run.curves.keys() & styles.keys() for run in runs)
        }
        figure = Figure(figsize=(8.5, 3.2 * len(panels)), layout="constrained")
        all_axes = figure.subplots(len(panels), squeeze=False).flat
        for axes, (title, styles) in zip(all_axes, panels.items()):
            for number, run in enumerate(runs):
                for name, style in styles.items():
                    if name in run.curves:
                        x, y = zip(*run.curves[name])
                        label = f"{run.name} {name.rpartition('_')[2]} {y[-1]:.4g}"
                        axes.plot(x, y, style, color=f"C{number}", marker=".", label=label)
            axes.set(title=title, yscale="log", xlabel="epochs")
            axes.legend()
        figure.suptitle(_title(runs))
        metadata = {"Date": None} if output.lower().endswith(".svg") else None
        with whole_file(output) as staged:
            figure.savefig(staged, transparent=True, dpi=160, metadata=metadata)


def _title(runs: Sequence[Run]) -> str:
    best = min(
        ((y, x, run.name) for run in runs for x, y in run.curves.get("validation", [])),
        default=None,
    )
    if best is None:
        return f"Training of {', '.join(run.name for run in runs)}"
    return f"Lowest validation perplexity: {best[0]:.4g} after {best[1]:g} epochs ({best[2]})"
