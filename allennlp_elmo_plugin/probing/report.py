"""The table and the picture of the probes of an ELMo."""

from pathlib import Path
from typing import Any, Dict, List

from allennlp_elmo_plugin.probing.probes import TASKS
from allennlp_elmo_plugin.probing.run import ALL, AMBIGUOUS, UNSEEN


def markdown(results: Dict[str, Any]) -> str:
    """Return the table."""
    task = TASKS[results["task"]]
    n_test = results["n_test"]
    lines = [
        f"| | all ({n_test[ALL]:,}) | ambiguous ({n_test[AMBIGUOUS]:,}) "
        f"| unseen ({n_test[UNSEEN]:,}) | paper |",
        "|---|---|---|---|---|",
    ]
    rows = [(f"most frequent {task.label} of the {task.key}", results["baseline"], "baseline")]
    rows += [
        (row["name"], row["accuracy"], str(row["layer"]) if row["direction"] == "both" else "")
        for row in results["layers"]
    ]
    for name, accuracy, key in rows:
        values = [accuracy[group] for group in (ALL, AMBIGUOUS, UNSEEN)]
        cells = ["" if value is None else f"{value:.2f}" for value in values]
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


def draw(results: Dict[str, Any], path: Path) -> None:
    """Draw the accuracy of each layer and direction, with that of the paper beside it."""
    from matplotlib.figure import Figure

    task = TASKS[results["task"]]
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    rows: List[Dict[str, Any]] = results["layers"]
    for direction, style in (("both", "o-"), ("forward", ">:"), ("backward", "<:")):
        # Of the token layer, all directions are the same.
        points = [row for row in rows if row["direction"] == direction or row["layer"] == 0]
        if len(points) > 1:
            accuracies = [row["accuracy"][ALL] for row in points]
            axes.plot([row["layer"] for row in points], accuracies, style, label=direction)
    baseline = f"most frequent {task.label}"
    axes.axhline(results["baseline"][ALL], color="gray", ls="--", label=baseline)
    paper = [(int(layer), value) for layer, value in task.paper.items() if layer.isdigit()]
    axes.plot(*zip(*paper), "s-", color="black", mfc="white", label="Peters et al. (2018)")
    names = {row["layer"]: row["name"] for row in rows if row["direction"] == "both"}
    axes.set_xticks(list(names), list(names.values()))
    axes.set_ylabel(f"{task.label}s: accuracy, %")
    axes.legend(fontsize="small")
    figure.savefig(path)
