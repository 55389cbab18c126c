"""The table and the picture of the probes of an ELMo."""

from pathlib import Path
from typing import Any

from allennlp_elmo_plugin.analysis.probes import TASKS


def markdown(results: dict[str, Any]) -> str:
    """Return the table."""
    task = TASKS[results["task"]]
    groups = [f"{name} ({number:,})" for name, number in results["n_test"].items()]
    lines = [f"| | {' | '.join(groups)} | paper |", "|---|---|---|---|---|"]
    rows = [(f"most frequent {task.label} of the {task.key}", results["baseline"], "baseline")]
    for row in results["layers"]:
        paper_key = str(row["layer"]) if row["direction"] == "both" else ""
        rows.append((row["name"], row["accuracy"], paper_key))
    for name, accuracies, key in rows:
        cells = ["" if value is None else f"{value:.2f}" for value in accuracies.values()]
        paper = f"{task.paper[key]:.1f}" if key in task.paper else ""
        lines.append(f"| {' | '.join([name, *cells, paper])} |")
    lines += [
        "",
        f"Accuracy in percent on the {task.label}s of the test set: all, those of {task.key}s with "
        f"several {task.label}s in training, and of {task.key}s that are new. "
        f"{results['n_train']:,} examples to train, with {results['n_labels']:,} {task.label}s. "
        "Paper: Peters et al. (2018), tables 5 (wsd) and 6 (pos), of another ELMo and data.",
    ]
    return "\n".join(lines) + "\n"


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the accuracy of each layer and direction, with that of the paper beside it."""
    from matplotlib.figure import Figure

    task = TASKS[results["task"]]
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    for direction, style in (("both", "o-"), ("forward", ">:"), ("backward", "<:")):
        # Of the token layer, all directions are the same.
        rows = [
            row for row in results["layers"] if row["direction"] == direction or not row["layer"]
        ]
        if len(rows) > 1:
            x, y = zip(*((row["layer"], row["accuracy"]["all"]) for row in rows))
            axes.plot(x, y, style, label=direction)
        if direction == "both":
            axes.set_xticks([row["layer"] for row in rows], [row["name"] for row in rows])
    axes.axhline(results["baseline"]["all"], color="gray", label=f"most frequent {task.label}")
    paper = [(int(layer), value) for layer, value in task.paper.items() if layer.isdigit()]
    axes.plot(*zip(*paper), "s-", color="black", label="Peters et al. (2018)")
    axes.set_ylabel(f"{task.label}s: accuracy, %")
    axes.legend(fontsize="small")
    figure.savefig(path)
