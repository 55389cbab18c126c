"""
The perplexities of training runs, epoch by epoch, and a figure of them.
"""

import json
import math
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.files.whole import whole_file

ENDINGS = (".svg", ".png", ".pdf")

# Seen well on white and on black, and told apart by colour-blind people.
_COLORS = ("#2f7fc1", "#d5601c", "#109a70", "#c4699b", "#8673c9", "#b8860b", "#35a7d6")
_INK = "#7b8490"

STYLE: Dict[Any, Any] = {
    "font.size": 9,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.w_pad": 0.1,
    "grid.color": "#7b849040",
    "legend.frameon": False,
    "svg.hashsalt": "elmo-plot",
    "text.parse_math": False,  # A folder may have a dollar in its name.
}
"""Settings of matplotlib for figures on any background."""

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
    Read the perplexities in the folder of a run, from its `metrics_epoch_N.json`.

    # Raises

    `ConfigurationError` if it isn't a folder, has no finite perplexity of a language model, or has
    a file that can't be read.
    """
    path = Path(folder)
    if not path.is_dir():
        raise ConfigurationError(f"{folder}: there is no such folder; give that of a training run")
    found = _read_metrics(path)
    if not found:
        raise ConfigurationError(
            f"{folder}: is not the folder of a language model's training that has ended an epoch: "
            "there is no perplexity in metrics_epoch_N.json"
        )
    # A logarithmic axis can have these.
    finite = {name: [(x, y) for x, y in curve if 0 < y < math.inf] for name, curve in found.items()}
    curves = {name: curve for name, curve in finite.items() if curve}
    if not curves:
        raise ConfigurationError(
            f"{folder}: the training diverged: no perplexity in metrics_epoch_N.json is finite, so "
            "there is nothing to draw; leave the folder out, or train with a smaller learning rate"
        )
    return Run(path.as_posix() if len(path.parts) < 3 else "/".join(path.parts[-2:]), curves)


def _read_metrics(folder: Path) -> Dict[str, Curve]:
    curves: Dict[str, Curve] = {}
    for path in folder.glob("metrics_epoch_*.json"):
        match = re.fullmatch(r"metrics_epoch_(\d+)", path.stem)
        if not match:
            continue
        epoch = int(match[1])
        try:
            # With NaN, as AllenNLP writes it
            metrics = json.loads(path.read_text(encoding="utf-8"))
            for name in (name for panel in _PANELS.values() for name in panel):
                key = f"{name}_perplexity"
                if key in metrics:
                    # That of training is the mean of the epoch.
                    x = epoch + (0.5 if name == "training" else 1)
                    curves.setdefault(name, []).append((x, float(metrics[key])))
                if epoch == 0 and f"initial_{key}" in metrics:  # of fine-tuning
                    curves.setdefault(name, []).append((0, float(metrics[f"initial_{key}"])))
        except (ValueError, TypeError) as error:
            raise ConfigurationError(
                f"{path}: is not a file of metrics as training writes it ({error}). If a run is "
                "writing it, repeat the command; otherwise move it elsewhere to draw the rest"
            ) from error
    return {name: sorted(curve) for name, curve in curves.items()}


def draw_curves(runs: Sequence[Run], output: str) -> None:
    """Draw a figure of all runs to a file, whose ending says in which format."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        panels = [
            panel
            for panel in _PANELS.items()
            if any(set(run.curves) & set(panel[1]) for run in runs)
        ]
        figure = Figure(figsize=(8.5, 3.2 * len(panels)), layout="constrained")
        for axes, (title, styles) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels):
            _draw_panel(axes, title, styles, runs)
        figure.suptitle(_title(runs), x=0.01, ha="left", fontsize=11.5, fontweight="bold")
        with whole_file(output) as staged:
            metadata = {"Date": None} if output.lower().endswith(".svg") else None
            figure.savefig(staged, transparent=True, dpi=160, metadata=metadata)


def _draw_panel(axes: Any, title: str, styles: Dict[str, str], runs: Sequence[Run]) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    for number, run in enumerate(runs):
        for name, style in styles.items():
            if name in run.curves:
                x, y = zip(*run.curves[name])
                parts = [run.name] if len(runs) > 1 else []
                label = " ".join([*parts, name.rpartition("_")[2], _number(y[-1])])
                axes.plot(
                    x,
                    y,
                    style,
                    color=_COLORS[number % len(_COLORS)],
                    marker="o",
                    markersize=3.5,
                    label=label,
                )
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    axes.set_xlim(left=0)
    axes.set_xlabel("epochs")
    axes.set_title(title)
    axes.grid(axis="y", linewidth=0.6)
    axes.legend(loc="upper right")


def _title(runs: Sequence[Run]) -> str:
    best: List[Tuple[float, str]] = []
    for run in runs:
        if "validation" in run.curves:
            x, y = min(run.curves["validation"], key=lambda point: point[1])
            epochs = f"{x:g} epoch{'' if x == 1 else 's'}"
            text = f"perplexity {_number(y)} on the validation text after {epochs}"
            best.append((y, f"{run.name}: {text}"))
    if not best:
        return f"Training of {', '.join(run.name for run in runs)}"
    return ("Best: " if len(runs) > 1 else "") + min(best)[1]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}" if value >= 10 else f"{value:.3g}"
