"""The perplexities of training runs, epoch by epoch, and a figure of them."""

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from allennlp_elmo_plugin.analysis.figures import figure
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.pretrained.checkpoints.training_run import archived_options
from allennlp_elmo_plugin.pretrained.file_names import CONFIG_FILE, OPTIONS_FILE
from allennlp_elmo_plugin.text.vocabulary import VOCABULARY_FOLDER, read_vocabulary_folder

Curves = dict[str, list[tuple[float, float]]]  # by name: epochs trained, and perplexity

_SAMPLED = "sampled training"
_LINE_STYLES = {"validation": "-", "validation_forward": "--", "validation_backward": "-."}


def read_run(folder: str) -> Curves:
    """Read the finite perplexities in the folder of a run, from its `metrics_epoch_N.json`."""
    epoch = 0
    curves: Curves = {}
    while (file := Path(folder) / f"metrics_epoch_{epoch}.json").exists():
        metrics = json.loads(file.read_text(encoding="utf-8"))
        for name in ("training", *_LINE_STYLES):
            # That of training is the mean of the epoch; fine-tuning has an initial one.
            points = {f"initial_{name}_perplexity": 0.0} if epoch == 0 else {}
            points[f"{name}_perplexity"] = epoch + (0.5 if name == "training" else 1)
            for key, x in points.items():
                if math.isfinite(metrics.get(key, math.nan)):
                    curves.setdefault(name, []).append((x, metrics[key]))
        epoch += 1
    if not curves:
        raise ValueError(f"{folder}: there is no finite perplexity in metrics_epoch_N.json")
    if "training" in curves and _is_sampled(Path(folder)):
        curves[_SAMPLED] = curves.pop("training")
    return curves


def _is_sampled(folder: Path) -> bool:
    """Return whether the files of a run tell that its loss was that of a sampled softmax."""
    with suppress(OSError, ValueError):
        if not (folder / CONFIG_FILE).exists():  # of `elmo-train`
            return BiLmOptions.from_file(folder / OPTIONS_FILE).sample_softmax
        words = read_vocabulary_folder(folder / VOCABULARY_FOLDER, str(folder))
        return archived_options(folder, len(words)).sample_softmax
    return False


def draw_curves(runs: dict[str, Curves], output: str) -> None:
    """
    Draw a figure of runs, by their names, to a file, whose ending says in which format. What can't
    be compared with the others, perplexities of sampled softmaxes, has an axis on the right.
    """
    with figure(output, 8.5, 4) as axes:
        right = axes.twinx() if any(_SAMPLED in curves for curves in runs.values()) else axes
        right.set_ylabel("perplexity of the sampled softmax")
        lines: list[Any] = []
        lowest = []
        for run, curves in runs.items():
            for name, points in curves.items():
                lowest_of_line = min(y for _, y in points)
                label = f"{run} {name.replace('validation_', '')} {lowest_of_line:.4g}"
                side = right if name == _SAMPLED else axes
                (line,) = side.plot(*zip(*points), _LINE_STYLES.get(name, ":"), label=label)
                line.set(color=f"C{len(lines)}", marker=".")
                lines.append(line)
            lowest += [(y, x, run) for x, y in curves.get("validation", [])]
        if lowest:
            y, x, run = min(lowest)
            axes.set_title(f"Lowest validation perplexity: {y:.4g} after {x:g} epochs ({run})")
        for side in (right, axes):
            side.set_yscale("log")
            side.yaxis.set_major_formatter("{x:g}")
            side.yaxis.set_minor_formatter("{x:g}")
        axes.set(ylabel="perplexity", xlabel="epochs")
        axes.locator_params("x", integer=True, min_n_ticks=1)
        axes.legend(handles=lines, title="lowest perplexities")
