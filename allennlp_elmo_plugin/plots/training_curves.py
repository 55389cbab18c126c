"""
The curves of training runs: what their folders have, and a figure of it.
"""

import json
import math
import os
import re
import struct
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.files.whole_file import whole_file
from allennlp_elmo_plugin.models.sentence_probabilities import perplexity_of

ENDINGS = (".svg", ".png", ".pdf")

_PERPLEXITIES = ("perplexity", "forward_perplexity", "backward_perplexity")

# A line of training's bar in out.log, such as
#   epoch 1/3:   3%|3  | 233/7061 [03:54<1:40:53,  1.13it/s, 2,538 words/s, perplexity: 322.0, ...]
# or, where the length of the text is not known yet,
#   epoch 1/3: 233it [03:54,  1.13it/s, 2,538 words/s, perplexity: 322.0, ...]
_BAR = re.compile(
    r"(?P<time>\d+-\d\d-\d\d \d\d:\d\d:\d\d),\d+ - INFO - tqdm - epoch (?P<epoch>\d+)/\d+: "
    r"(?:.*?\| )?(?P<done>\d+)(?:/(?P<total>\d+)|it) "
    r"\[(?P<elapsed>[\d:]+)[<,].*?, (?P<rate>[\d,]+) words/s, (?P<metrics>.*)\]"
)
_METRIC = re.compile(r"(\w+): ([\d.]+)")

_LOGS = ("out.log", "out_worker0.log")
"""Of a run with one process, and of the first of several."""

_SAME_PROCESS = 2
"""By how many seconds the starts of a process differ that are computed from lines of its bar."""

_MOST_POINTS = 200
"""Of a run's curve within its epochs."""

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
    "svg.hashsalt": "elmo-plot",
}
"""Settings of matplotlib for figures on any background."""

Curve = List[Tuple[float, float]]
"""Points: how many epochs were trained, and a value."""


class Run(NamedTuple):
    """
    The curves of a run.

    # Parameters

    name : `str`
        The end of its path.
    curves : `Dict[str, Curve]`
        `training_perplexity`, `validation_perplexity`, `words_per_second`, `learning_rate`,
        `gradient_norm` and the perplexities of the directions, `training_forward_perplexity` and so
        on; those that the folder has.
    """

    name: str
    curves: Dict[str, Curve]


class _Point(NamedTuple):
    """A line of training's bar."""

    epoch: int  # from 0
    done: int
    """Batches of this epoch."""
    total: int
    seconds: float
    """Since the process began with this epoch."""
    start: float
    """The time at which it did, in seconds."""
    rate: float
    """Words/s since then."""
    metrics: Dict[str, float]
    """Perplexities of the epoch so far."""


def read_run(folder: str) -> Run:
    """
    Read what the folder of a run has: the metrics of each epoch, the progress within the epochs
    (`out.log`), and the logs of TensorBoard.

    # Raises

    `ConfigurationError` if it isn't a folder, has no finite perplexity of a language model, or has
    a file that can't be read.
    """
    path = Path(folder)
    if not path.is_dir():
        raise ConfigurationError(f"{folder}: there is no such folder; give that of a training run")
    points = _points([_read_log(path / name) for name in _LOGS])
    curves = _curves_of_log(points)
    for name, curve in _read_metrics(path).items():
        # Within the epochs there are more points of training.
        if name not in curves:
            curves[name] = curve
    has_perplexity = any(name.endswith("perplexity") for name in curves)
    curves = {name: drawn for name, curve in curves.items() if (drawn := _positive(curve))}
    if not any(name.endswith("perplexity") for name in curves):
        raise ConfigurationError(
            f"{folder}: the training diverged: no perplexity in metrics_epoch_N.json or out.log is "
            "finite, so there is nothing to draw; leave the folder out, or train with a smaller "
            "learning rate"
            if has_perplexity
            else f"{folder}: is not the folder of a language model's training that has begun: "
            "there is no perplexity in metrics_epoch_N.json or out.log"
        )
    n_batches = max((point.total for point in points), default=0)
    curves.update(_read_events(path / "log" / "train", n_batches))
    return Run(path.as_posix() if len(path.parts) < 3 else "/".join(path.parts[-2:]), curves)


def _positive(curve: Curve) -> Curve:
    """Return the points that a logarithmic axis can have."""
    return [(x, y) for x, y in curve if 0 < y < math.inf]


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
            for part in ("training", "validation"):
                for perplexity in _PERPLEXITIES:
                    name = f"{part}_{perplexity}"
                    if name in metrics:
                        # That of training is the mean of the epoch.
                        x = epoch + (0.5 if part == "training" else 1)
                        curves.setdefault(name, []).append((x, float(metrics[name])))
                    initial = metrics.get(f"initial_{name}")  # of fine-tuning
                    if epoch == 0 and initial is not None:
                        curves.setdefault(name, []).append((0, float(initial)))
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise ConfigurationError(
                f"{path}: is not a file of metrics as training writes it ({error}). If a run is "
                "writing it, repeat the command; otherwise move it elsewhere to draw the rest"
            ) from error
    return {name: sorted(curve) for name, curve in curves.items()}


def _read_log(path: Path) -> List[_Point]:
    """Return the lines of training's bar that have batches."""
    points: List[_Point] = []
    if not path.is_file():
        return points
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            found = _BAR.search(line)
            if not found:
                continue
            seconds = 0
            for part in found["elapsed"].split(":"):
                seconds = 60 * seconds + int(part)
            metrics = {name: float(value) for name, value in _METRIC.findall(found["metrics"])}
            time = datetime.strptime(found["time"], "%Y-%m-%d %H:%M:%S") - datetime(1970, 1, 1)
            point = _Point(
                int(found["epoch"]) - 1,
                int(found["done"]),
                int(found["total"] or 0),
                seconds,
                time.total_seconds() - seconds,
                float(found["rate"].replace(",", "")),
                {name: metrics[name] for name in _PERPLEXITIES if metrics.get(name, 0) > 0},
            )
            if point.done:
                points.append(point)
    return points


def _points(logs: Sequence[List[_Point]]) -> List[_Point]:
    """
    Return the points of the run in order, without those that a recovered run has repeated. It may
    have recovered with another number of processes, which have another log.
    """
    points: List[_Point] = []
    for log in sorted(filter(None, logs), key=lambda log: log[0].start):
        for point in log:
            while points and points[-1][:2] >= point[:2]:
                points.pop()
            points.append(point)
    # The first epoch has as many batches as it came to, or as the others have.
    most = max((max(point.total, point.done) for point in points), default=0)
    return [point._replace(total=point.total or most) for point in points]


def _curves_of_log(points: Sequence[_Point]) -> Dict[str, Curve]:
    """
    Return words/s and perplexities between the lines of the bar, which has those of the epoch so
    far.
    """
    curves: Dict[str, Curve] = {}
    for before, point in _pairs(points):
        n_batches = point.done - before.done
        x = point.epoch + (before.done + point.done) / 2 / point.total
        for name, value in point.metrics.items():
            loss = point.done * math.log(value)
            if before.done and name in before.metrics:
                loss -= before.done * math.log(before.metrics[name])
                perplexity = perplexity_of(loss / n_batches)
            else:
                perplexity = value
            curves.setdefault(f"training_{name}", []).append((x, perplexity))
        rate = point.rate
        seconds = point.seconds - before.seconds
        # A process that has recovered counts its own words and seconds.
        if seconds > 0 and abs(point.start - before.start) <= _SAME_PROCESS:
            rate = (point.rate * point.seconds - before.rate * before.seconds) / seconds
        if rate > 0:
            curves.setdefault("words_per_second", []).append((x, rate))
    return curves


def _pairs(points: Sequence[_Point]) -> Iterator[Tuple[_Point, _Point]]:
    """
    Yield the beginning and the end of each part of an epoch that is a point of the curves. A short
    rest at the end of an epoch belongs to the part before it, since a few batches say little.
    """
    if not points:
        return
    first, last = points[0], points[-1]
    span = last.epoch + last.done / last.total - first.epoch
    for epoch, group in groupby(points, key=lambda point: point.epoch):
        bounds: List[_Point] = []
        for point in group:
            if not bounds:
                bounds.append(_Point(epoch, 0, point.total, 0.0, point.start, 0.0, {}))
            if point.done - bounds[-1].done >= point.total * span / _MOST_POINTS:
                bounds.append(point)
        if bounds[-1] is not point:
            bounds.append(point)
        if len(bounds) > 2:
            rest, part = (bounds[i].done - bounds[i - 1].done for i in (-1, -2))
            if rest < part / 2:
                del bounds[-2]
        yield from zip(bounds, bounds[1:])


def _read_events(folder: Path, n_batches: float) -> Dict[str, Curve]:
    """
    Return `learning_rate`, the largest of all parameters, and `gradient_norm` from the files of
    AllenNLP's callback "tensorboard".

    # Parameters

    folder : `Path`
    n_batches : `float`
        How many training has in an epoch; 0 if that is not known.
    """
    values: Dict[str, Dict[int, float]] = {"learning_rate": {}, "gradient_norm": {}}
    estimate = 0.0
    for path in sorted(folder.glob("events.out.tfevents.*")):
        first: Optional[int] = None
        last = 0
        for step, tag, value in _events(path):
            name = tag.split("/")[0]
            if name in values:
                batch = step - 1  # AllenNLP logs batch n as step n + 1.
                if first is None:
                    first = batch
                    for batches in values.values():  # A recovered run writes these again.
                        for later in [each for each in batches if each >= first]:
                            del batches[later]
                last = batch
                if math.isfinite(value):
                    values[name][batch] = max(value, values[name].get(batch, 0.0))
            elif tag == "train/loss" and step > 0:  # of an epoch, from 1
                # Not all batches are logged.
                estimate = last / step
    n_batches = n_batches or estimate
    if not n_batches:
        return {}
    curves = {
        name: [(batch / n_batches, value) for batch, value in sorted(batches.items())]
        for name, batches in values.items()
    }
    curves["gradient_norm"] = _positive(curves["gradient_norm"])
    return {name: curve for name, curve in curves.items() if curve}


def _events(path: Path) -> Iterator[Tuple[int, str, float]]:
    """Yield step, name and value of each scalar."""
    from google.protobuf.message import DecodeError
    from tensorboardX.proto.event_pb2 import Event

    size = os.path.getsize(path)
    with open(path, "rb") as file:
        # A record is its length, a checksum of that, the event, and a checksum of that.
        while len(header := file.read(12)) == 12:
            (length,) = struct.unpack("<Q", header[:8])
            if file.tell() + length + 4 > size:
                return  # cut off by a kill
            content = file.read(length)
            file.read(4)
            try:
                event = Event.FromString(content)
            except DecodeError:
                raise ConfigurationError(
                    f"{path}: is damaged before byte {file.tell():,}; move it elsewhere to draw "
                    "the rest"
                ) from None
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    yield event.step, value.tag, value.simple_value


def draw_curves(runs: Sequence[Run], output: str) -> None:
    """Draw a figure of all runs to a file, whose ending says in which format."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        panels = [panel for panel in _PANELS if any(_has(run, panel) for run in runs)]
        n_rows = 1 + math.ceil((len(panels) - 1) / 2)
        figure = Figure(figsize=(8.5, 3.4 + 2.2 * (n_rows - 1)), layout="constrained")
        grid = figure.add_gridspec(n_rows, 2, height_ratios=[3] + [2] * (n_rows - 1))
        end = max(x for run in runs for curve in run.curves.values() for x, _ in curve)
        for number, panel in enumerate(panels):
            row, column = divmod(number + 1, 2)
            # The first fills its row, and the last if it is alone there.
            is_wide = number == 0 or (number == len(panels) - 1 and column == 0)
            place = grid[row, :] if is_wide else grid[row, column]
            _draw_panel(figure.add_subplot(place), panel, runs, end)
        figure.suptitle(_plain(_title(runs)), x=0.01, ha="left", fontsize=11.5, fontweight="bold")
        with whole_file(output) as staged:
            metadata = {"Date": None} if output.lower().endswith(".svg") else None
            figure.savefig(staged, transparent=True, dpi=160, metadata=metadata)


class _Panel(NamedTuple):
    """One axes of the figure: its title, and the curves with their labels and line styles."""

    title: str
    curves: Dict[str, Tuple[str, str]]
    is_log: bool = False
    is_rate: bool = False
    """Whether the last value says nothing about the run."""


_PANELS = (
    _Panel(
        "Perplexity",
        {"training_perplexity": ("training", "thin"), "validation_perplexity": ("validation", "")},
        is_log=True,
    ),
    _Panel(
        "Validation perplexity of each direction",
        {
            "validation_forward_perplexity": ("forward", ""),
            "validation_backward_perplexity": ("backward", "dashed"),
        },
        is_log=True,
    ),
    _Panel("Speed of training, words/s", {"words_per_second": ("", "thin")}, is_rate=True),
    _Panel("Learning rate", {"learning_rate": ("", "")}, is_rate=True),
    _Panel(
        "Norm of the gradients, before clipping",
        {"gradient_norm": ("", "thin")},
        is_log=True,
        is_rate=True,
    ),
)


def _has(run: Run, panel: _Panel) -> bool:
    return any(name in run.curves for name in panel.curves)


def _title(runs: Sequence[Run]) -> str:
    best: List[Tuple[float, str]] = []
    for run in runs:
        curve = run.curves.get("validation_perplexity")
        if curve:
            x, y = min(curve, key=lambda point: point[1])
            text = f"perplexity {_number(y)} on the validation text after {_epochs(x)}"
            best.append((y, f"{run.name}: {text}"))
    if not best:
        return f"Training of {', '.join(run.name for run in runs)}"
    return ("Best: " if len(runs) > 1 else "") + min(best)[1]


def _plain(text: str) -> str:
    """Return text in which matplotlib finds no formulas."""
    return text.replace("$", r"\$")


def _epochs(x: float) -> str:
    return f"{x:g} epoch{'' if x == 1 else 's'}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def _draw_panel(axes: Any, panel: _Panel, runs: Sequence[Run], end: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    labels: List[Tuple[float, str, str]] = []
    for number, run in enumerate(runs):
        color = _COLORS[number % len(_COLORS)]
        for name, (label, kind) in panel.curves.items():
            curve = run.curves.get(name)
            if not curve:
                continue
            x, y = zip(*curve)
            has_few = len(curve) <= 30 and "validation" in name
            axes.plot(
                x,
                y,
                color=color,
                alpha=0.85 if kind == "thin" else 1.0,
                linewidth=1.0 if kind == "thin" else 1.8,
                linestyle="--" if kind == "dashed" else "-",
                marker="o" if has_few else None,
                markersize=3.5,
            )
            value = "" if panel.is_rate else _number(y[-1])
            parts = [run.name if len(runs) > 1 else "", label, value]
            labels.append((y[-1], " ".join(filter(None, parts)), color))
    if panel.is_log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        few = high / low < 100
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7) if few else (1, 3)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_xlim(0, end)
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=end > 3))
    axes.set_xlabel("epochs")
    axes.set_title(panel.title, color=_INK)
    axes.grid(axis="y", linewidth=0.6)
    axes.set_axisbelow(True)
    _label_ends(axes, labels)


def _label_ends(axes: Any, labels: Sequence[Tuple[float, str, str]]) -> None:
    """
    Write labels beside the ends of the curves, not over each other, nor over the title beyond the
    top.
    """
    gap = 12 / (72 * axes.figure.get_figheight() * axes.get_position().height)
    heights: List[float] = []
    to_axes = axes.transData + axes.transAxes.inverted()
    for value, _, _ in sorted(labels):
        own = float(to_axes.transform((0, value))[1] or 0)
        heights.append(max(own, heights[-1] + gap if heights else 0))
    for number, height in enumerate(reversed(heights), 1):
        heights[-number] = min(height, 1 - gap * (number - 0.5))
    for (_, text, color), height in zip(sorted(labels), heights):
        axes.annotate(
            _plain(text),
            (1, height),
            (5, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            color=color,
            va="center",
            fontsize=8.5,
            annotation_clip=False,
        )
