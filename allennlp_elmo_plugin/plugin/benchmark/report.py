"""The finished runs of a benchmark, from which it resumes, and their tables and pictures."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.analysis.figures import GREY, figure
from allennlp_elmo_plugin.files.atomic import write_text
from allennlp_elmo_plugin.files.json_file import to_json
from allennlp_elmo_plugin.files.markdown import markdown_table
from allennlp_elmo_plugin.plugin.benchmark.configuration import Configuration
from allennlp_elmo_plugin.plugin.benchmark.task import MODELS, TASKS, kind_of

Runs = dict[tuple[str, str], list[dict[str, Any]]]
"""The results of all seeds by task and model, which is one of `MODELS`."""

Bars = Mapping[str, Sequence[float | None]]


def file_of(output: Path, task: str, model: str, seed: int) -> Path:
    """Return the file of a run. It trains in the folder of the same name without `.json`."""
    return output / "runs" / task / f"{model}-{seed}.json"


def read_runs(output: Path) -> Runs:
    """Return the finished runs."""
    runs: Runs = {}
    for file in sorted((output / "runs").rglob("*-*.json")):
        run = json.loads(file.read_text(encoding="utf-8"))
        runs.setdefault((run["task"], run["model"]), []).append(run)
    return runs


def check_output(output: Path, configuration: Configuration, tasks: list[str]) -> None:
    """Refuse a folder that contains anything but results of these parameters and data."""
    names = [path.name for path in output.glob("*") if not path.name.startswith(".")]
    if names and "runs" not in names:
        raise ConfigurationError(f"--output {output}: the folder is not empty, and no benchmark")
    for (task, model), runs in read_runs(output).items():
        expected = {"elmo": configuration.elmo_digest()} if model == "elmo" else {}
        if task in tasks:
            expected = configuration.digests(task, model)
        for run in runs:
            before = run.get("digests", {})
            changed = [name for name in expected if before.get(name) != expected[name]]
            if changed:
                raise ConfigurationError(
                    f"--output {output}: {file_of(Path(), task, model, run['seed'])} is not of "
                    f"this benchmark: {', '.join(changed)} changed. Choose another folder"
                )


def write_tables(output: Path) -> str:
    """Write `results.json` and `results.md` of all finished runs. Return the latter."""
    rows = summarize(read_runs(output))
    table = markdown(rows)
    for name, text in (("results.json", to_json(rows)), ("results.md", table)):
        write_text(output / name, text)
    return table


def summarize(runs: Runs) -> list[dict[str, Any]]:
    """Return a row for each task, over the seeds with which all its models were trained."""
    rows = []
    for name in dict.fromkeys(task for task, _ in runs):
        models = [model for model in MODELS if (name, model) in runs]
        seeds = set.intersection(*({run["seed"] for run in runs[name, model]} for model in models))
        if not seeds or not {"baseline", "elmo"}.issubset(models):
            continue
        row: dict[str, Any] = {"task": name, **TASKS[kind_of(name)]._asdict()}
        for model in models:
            results = [run for run in runs[name, model] if run["seed"] in seeds]
            scores = [run["score"] for run in results]
            row[model] = {
                "mean": mean(scores),
                "std": stdev(scores) if len(scores) > 1 else None,
                "seeds": [run["seed"] for run in results],
                **{key: mean(run[key] for run in results) for key in ("seconds", "epochs")},
                "trained_parameters": results[0]["trained_parameters"],
            }
        mixes = zip(*(run["layer_weights"] for run in results))  # of ELMo, the last model
        row["layer_weights"] = [[mean(layer) for layer in zip(*mix)] for mix in mixes]
        row["deltas"] = {model: _delta(row, model) for model in models if model != "elmo"}
        row["delta"] = row["deltas"]["baseline"]["mean"]
        machines = (run["machine"] for model in models for run in runs[name, model])
        row["machines"] = list(dict.fromkeys(machines))
        rows.append(row)
    return rows


def _delta(row: dict[str, Any], model: str) -> dict[str, Any]:
    elmo, other = row["elmo"], row[model]
    delta, error, beyond = elmo["mean"] - other["mean"], None, None
    if other["std"] is not None:
        error = math.hypot(elmo["std"], other["std"]) / math.sqrt(len(other["seeds"]))
        beyond = abs(delta) > 2 * error
    return {"mean": delta, "standard_error": error, "beyond_two_standard_errors": beyond}


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table of `summarize`'s rows."""
    if not rows:
        return "No task has been trained without and with ELMo yet.\n"
    models = [model for model in MODELS if any(model in row for row in rows)]
    others = [model for model in models if model != "elmo"]
    columns = ["task", "score (test)", *(MODELS[model] for model in models)]
    columns += ["delta"] if len(others) < 2 else [f"delta to {MODELS[model]}" for model in others]
    columns += ["paper's delta", "seeds", "time a run"]
    table = []
    for row in rows:
        scores = [row.get(model) for model in models]
        deltas = [row["deltas"].get(model) for model in others]
        times = " / ".join(f"{score['seconds'] / 60:.1f}" for score in scores if score)
        paper = row["paper_delta"]
        cells = [
            *(row["task"], row["score_name"]),
            *(score and _with_error(f"{score['mean']:.2f}", score["std"]) for score in scores),
            *(delta and _of_delta(delta) for delta in deltas),
            *(paper and f"{paper:+.2f}", str(len(row["elmo"]["seeds"])), f"{times} min"),
        ]
        table.append([cell or "" for cell in cells])
    titles = " / ".join("with ELMo" if model == "elmo" else MODELS[model] for model in models)
    machines = dict.fromkeys(machine for row in rows for machine in row["machines"])
    notes = (
        "Official scores in percent: mean and standard deviation over the seeds. Deltas: with "
        "their standard error, in bold if they are larger than two standard errors. Time: "
        f"{titles}, whose runs share the vectors of their sentences."
    )
    return f"{markdown_table(columns, table)}\n\n{notes}\n\nMachine: {'; or '.join(machines)}.\n"


def _of_delta(delta: dict[str, Any]) -> str:
    bold = "**" if delta["beyond_two_standard_errors"] else ""
    return _with_error(f"{bold}{delta['mean']:+.2f}{bold}", delta["standard_error"])


def _with_error(number: str, error: float | None) -> str:
    return number if error is None else f"{number} ± {error:.2f}"


def draw(output: Path) -> None:
    """Draw `scores.png` and `layer_weights.png`."""
    rows = summarize(read_runs(output))
    models = [model for model in MODELS if any(model in row for row in rows)]
    means, deviations = (
        {MODELS[model]: [row.get(model, {}).get(key) for row in rows] for model in models}
        for key in ("mean", "std")
    )
    names = [f"{row['task']}\n{row['score_name']}" for row in rows]
    with figure(output / "scores.png", 1.5 + 1.5 * len(rows), 4) as axes:
        draw_bars(axes, names, means, deviations)
        axes.set_ylabel("test, %")
    weights = {}
    for row in rows:
        for number, mix in enumerate(row["layer_weights"], 1):
            weights[row["task"] if number == 1 else f"{row['task']}, mix {number}"] = mix
    if weights:  # A user's configs may have no mix.
        draw_layer_weights(weights, output / "layer_weights.png")


def draw_layer_weights(weights: dict[str, list[float]], path: Path) -> None:
    """Draw the layers' weights in each scalar mix, by its name, as the parts of a bar."""
    layers = np.transpose(list(weights.values()))  # (layers, mixes)
    with figure(path, 8, 0.8 + 0.32 * len(weights)) as axes:
        for number, (layer, end) in enumerate(zip(layers, layers.cumsum(0))):
            label = f"LSTM {number}" if number else "token layer"
            bars = axes.barh(list(weights), layer, left=end - layer, label=label)
            axes.bar_label(bars, fmt="%.2f", label_type="center", color="white", fontsize=8)
        axes.set(xlim=(0, 1), ylim=(len(weights) - 0.5, -0.5))
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(layers))


def draw_bars(axes: Any, groups: Sequence[str], bars: Bars, errors: Bars | None = None) -> None:
    """
    Draw groups of bars with their values above them; `None` is a missing bar. A label such as
    "+ ELMo" adds to the one before. `errors` are standard deviations.
    """
    width, before = 0.9 / len(bars), ""
    for number, (label, values) in enumerate(bars.items()):
        places = np.arange(len(groups)) + (number + 0.5) * width - 0.45
        heights = np.array(values, dtype=float)  # NaN for None
        deviations = np.array(errors[label], dtype=float) if errors else None
        before = f"{before} {label}" if label.startswith("+") else label
        style = {"label": before, "capsize": 3, "ecolor": GREY}
        drawn = axes.bar(places, heights, width, yerr=deviations, **style)
        axes.bar_label(drawn, fmt="%.1f", fontsize=7, padding=1)
    axes.set_xticks(range(len(groups)), groups)
    title = "mean ± standard deviation" if errors else None
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), title=title)
