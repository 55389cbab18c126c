"""Tables and pictures of a benchmark's finished runs."""

import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Dict, List, Optional, Tuple

from allennlp_elmo_plugin.benchmark.data_folder import kind_of
from allennlp_elmo_plugin.benchmark.layer_weights import columns_by_place, draw_layer_weights
from allennlp_elmo_plugin.benchmark.results_folder import MODELS, ResultsFolder, Runs
from allennlp_elmo_plugin.benchmark.task import TASKS
from allennlp_elmo_plugin.files.whole_file import whole_file


def write_tables(folder: ResultsFolder) -> Tuple[List[Dict[str, Any]], str]:
    """
    Write `results.json` and `results.md` of all finished runs. Return the rows of `summarize` and
    the table in Markdown.
    """
    rows = summarize(folder.read_runs())
    table = markdown(rows)
    folder.write("results.json", json.dumps(rows, indent=2))
    folder.write("results.md", table)
    return rows, table


def summarize(runs: Runs) -> List[Dict[str, Any]]:
    """
    Return a row for each task, over the seeds that both models have been trained with: `task`,
    `score_name`, `allennlp_metric`, `delta`, `paper_delta`, for each model `mean`, `std` (of a
    sample; null for one seed), `seeds`, `allennlp_mean`, `seconds` and `epochs` (means), and
    `layer_weights` of ELMo.
    """
    rows = []
    for name in dict.fromkeys(task for task, _ in runs):
        seeds = set.intersection(
            *({run["seed"] for run in runs.get((name, model), [])} for model in MODELS)
        )
        if not seeds:
            continue
        task = TASKS[kind_of(name)]
        row: Dict[str, Any] = {
            "task": name,
            "score_name": task.score_name,
            "allennlp_metric": task.allennlp_metric,
        }
        for model in MODELS:
            results = [run for run in runs[name, model] if run["seed"] in seeds]
            scores = [result["score"] for result in results]
            row[model] = {
                "mean": mean(scores),
                "std": stdev(scores) if len(scores) > 1 else None,
                "seeds": [result["seed"] for result in results],
                "allennlp_mean": 100
                * mean(result["allennlp_metrics"][task.allennlp_metric] for result in results),
                "seconds": mean(result["seconds"] for result in results),
                "epochs": mean(result["epochs"] for result in results),
                "trained_parameters": results[0]["trained_parameters"],
            }
        mixes = zip(*(result["layer_weights"] for result in results))  # of ELMo
        row["layer_weights"] = [[mean(layer) for layer in zip(*mix)] for mix in mixes]
        row["delta"] = row["elmo"]["mean"] - row["baseline"]["mean"]
        row["paper_delta"] = task.paper_delta
        rows.append(row)
    return rows


def markdown(rows: List[Dict[str, Any]]) -> str:
    """Return the table, and one of AllenNLP's metrics where they differ from official scores."""
    lines = [
        "| task | score (test) | baseline | + ELMo | delta | paper's delta | seeds | time a run |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        paper = "" if row["paper_delta"] is None else f"{row['paper_delta']:+.2f}"
        lines.append(
            f"| {row['task']} | {row['score_name']} | {_plus_minus(row['baseline'])} | "
            f"{_plus_minus(row['elmo'])} | {row['delta']:+.2f} | {paper} | "
            f"{len(row['elmo']['seeds'])} | {row['baseline']['seconds'] / 60:.1f} / "
            f"{row['elmo']['seconds'] / 60:.1f} min |"
        )
    lines += [
        "",
        "Official scores in percent: mean and standard deviation over the seeds. Time: baseline / "
        "with ELMo, which shares the vectors of its sentences between the runs.",
    ]
    different = [
        row
        for row in rows
        if any(abs(row[model]["mean"] - row[model]["allennlp_mean"]) >= 0.005 for model in MODELS)
    ]
    if different:
        lines += [
            "",
            "AllenNLP's metric, by which the best epoch was chosen, counts differently here:",
            "",
            "| task | AllenNLP's metric | baseline | + ELMo |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {row['task']} | {row['allennlp_metric']} | "
            f"{row['baseline']['allennlp_mean']:.2f} | {row['elmo']['allennlp_mean']:.2f} |"
            for row in different
        ]
    return "\n".join(lines) + "\n"


def _plus_minus(model: Dict[str, Any]) -> str:
    deviation: Optional[float] = model["std"]
    return f"{model['mean']:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def draw(rows: List[Dict[str, Any]], runs: Runs, folder: Path) -> None:
    """
    Draw `scores.png`, `curves.png` and `layer_weights.png`, the weight of each layer in each task:
    see `draw_layer_weights`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    def save(figure: Any, name: str) -> None:
        with whole_file(folder / name) as staged:
            FigureCanvasAgg(figure).print_png(staged)

    names = [row["task"] for row in rows]
    figure = Figure(figsize=(1.5 + 1.5 * len(rows), 4), layout="constrained")
    axes = figure.subplots()
    for offset, (model, label) in zip((-0.2, 0.2), MODELS.items()):
        axes.bar(
            [position + offset for position in range(len(rows))],
            [row[model]["mean"] for row in rows],
            yerr=[row[model]["std"] or float("nan") for row in rows],
            width=0.4,
            label=label,
            capsize=3,
        )
    axes.set_xticks(range(len(rows)), [f"{row['task']}\n{row['score_name']}" for row in rows])
    axes.set_ylabel("test, %")
    axes.legend()
    save(figure, "scores.png")

    figure = Figure(figsize=(4 * len(rows), 3.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(rows), squeeze=False)[0], names):
        for (model, label), color in zip(MODELS.items(), ("C0", "C1")):
            for seed, result in enumerate(runs[name, model]):
                curve = result["curve"]
                axes.plot(
                    range(1, len(curve) + 1),
                    curve,
                    color=color,
                    marker=".",
                    label=None if seed else label,
                )
        axes.set_title(name)
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.axes[0].set_ylabel("validation, %")
    figure.axes[0].legend()
    save(figure, "curves.png")

    columns = columns_by_place(rows)
    if columns:  # A user's configs may have no mix.
        save(draw_layer_weights(columns), "layer_weights.png")
