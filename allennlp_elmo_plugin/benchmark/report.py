"""Tables and pictures of a benchmark's finished runs."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any, Dict, List, Optional, Tuple

from allennlp_elmo_plugin.benchmark.data_folder import kind_of
from allennlp_elmo_plugin.benchmark.layer_weights import columns_by_place, draw_layer_weights
from allennlp_elmo_plugin.benchmark.results_folder import MODELS, ResultsFolder, Runs
from allennlp_elmo_plugin.benchmark.task import TASKS
from allennlp_elmo_plugin.files.json_file import to_json
from allennlp_elmo_plugin.files.whole import whole_file

_COLORS = {"baseline": "C0", "vectors": "C2", "elmo": "C1"}


def write_tables(folder: ResultsFolder) -> Tuple[List[Dict[str, Any]], str]:
    """
    Write `results.json` and `results.md` of all finished runs. Return the rows of `summarize` and
    the table in Markdown.
    """
    rows = summarize(folder.read_runs())
    table = markdown(rows)
    folder.write("results.json", to_json(rows))
    folder.write("results.md", table)
    return rows, table


def summarize(runs: Runs) -> List[Dict[str, Any]]:
    """
    Return a row for each task, over the seeds that all its models have been trained with: `task`,
    `score_name`, `allennlp_metric`, `paper_delta`, for each model `mean`, `std` (of a sample; null
    for one seed), `seeds`, `allennlp_mean`, `seconds` and `epochs` (means) and `not_stopped_early`
    (the number of runs that ended at the last epoch); `layer_weights` of ELMo; `machines`; and
    `deltas`, what ELMo adds to each of the others: `mean`, `standard_error` (the root of the sum of
    the squared standard errors of both means; null for one seed) and `beyond_two_standard_errors`.
    `delta` is the mean of the first.
    """
    rows = []
    for name in dict.fromkeys(task for task, _ in runs):
        models = [model for model in MODELS if (name, model) in runs]
        seeds = set.intersection(*({run["seed"] for run in runs[name, model]} for model in models))
        if not seeds or not {"baseline", "elmo"}.issubset(models):
            continue
        task = TASKS[kind_of(name)]
        row: Dict[str, Any] = {
            "task": name,
            "score_name": task.score_name,
            "allennlp_metric": task.allennlp_metric,
        }
        machines: Dict[str, None] = {}
        for model in models:
            results = [run for run in runs[name, model] if run["seed"] in seeds]
            machines.update(dict.fromkeys(run["machine"] for run in results))
            scores = [result["score"] for result in results]
            row[model] = {
                "mean": mean(scores),
                "std": stdev(scores) if len(scores) > 1 else None,
                "seeds": [result["seed"] for result in results],
                "allennlp_mean": 100
                * mean(result["allennlp_metrics"][task.allennlp_metric] for result in results),
                "seconds": mean(result["seconds"] for result in results),
                "epochs": mean(result["epochs"] for result in results),
                "not_stopped_early": sum(not result["stopped_early"] for result in results),
                "trained_parameters": results[0]["trained_parameters"],
            }
        mixes = zip(*(result["layer_weights"] for result in results))  # of ELMo
        row["layer_weights"] = [[mean(layer) for layer in zip(*mix)] for mix in mixes]
        row["deltas"] = {model: _delta(row, model) for model in models if model != "elmo"}
        row["delta"] = row["deltas"]["baseline"]["mean"]
        row["paper_delta"] = task.paper_delta
        row["machines"] = list(machines)
        rows.append(row)
    return rows


def _delta(row: Dict[str, Any], model: str) -> Dict[str, Any]:
    delta = row["elmo"]["mean"] - row[model]["mean"]
    error: Optional[float] = None
    beyond: Optional[bool] = None
    if len(row[model]["seeds"]) > 1:
        variances = [row[each]["std"] ** 2 / len(row[each]["seeds"]) for each in ("elmo", model)]
        error = sum(variances) ** 0.5
        beyond = abs(delta) > 2 * error
    return {"mean": delta, "standard_error": error, "beyond_two_standard_errors": beyond}


def markdown(rows: List[Dict[str, Any]]) -> str:
    """Return the table, and one of AllenNLP's metrics where they differ from official scores."""
    models = [model for model in MODELS if any(model in row for row in rows)]
    others = [model for model in models if model != "elmo"]
    deltas = ["delta"] if len(others) < 2 else [f"delta to {MODELS[model]}" for model in others]
    columns = ["task", "score (test)", *(MODELS[model] for model in models), *deltas]
    columns += ["paper's delta", "seeds", "time a run"]
    lines = [_line(columns), "|" + "---|" * len(columns)]
    for row in rows:
        times = [f"{row[model]['seconds'] / 60:.1f}" for model in models if model in row]
        cells = [row["task"], row["score_name"]]
        cells += [_plus_minus(row[model]) if model in row else "" for model in models]
        cells += [_with_error(row["deltas"].get(model)) for model in others]
        cells.append("" if row["paper_delta"] is None else f"{row['paper_delta']:+.2f}")
        cells += [str(len(row["elmo"]["seeds"])), f"{' / '.join(times)} min"]
        lines.append(_line(cells))
    lines += [
        "",
        "Official scores in percent: mean and standard deviation over the seeds. Deltas: with "
        "their standard error, in bold if they are beyond two of them. Time: "
        + " / ".join("with ELMo" if model == "elmo" else MODELS[model] for model in models)
        + ", which shares the vectors of its sentences between the runs.",
    ]
    machines = list(dict.fromkeys(machine for row in rows for machine in row["machines"]))
    lines += ["", "Machine: " + "; or ".join(machines) + "."]
    lines += _not_stopped_early(rows)
    different = [
        row
        for row in rows
        if any(
            abs(row[model]["mean"] - row[model]["allennlp_mean"]) >= 0.005
            for model in models
            if model in row
        )
    ]
    if different:
        lines += [
            "",
            "AllenNLP's metric, by which the best epoch was chosen, counts differently here:",
            "",
            _line(["task", "AllenNLP's metric", *(MODELS[model] for model in models)]),
            "|" + "---|" * (2 + len(models)),
        ]
        for row in different:
            scores = [
                f"{row[model]['allennlp_mean']:.2f}" if model in row else "" for model in models
            ]
            lines.append(_line([row["task"], row["allennlp_metric"], *scores]))
    return "\n".join(lines) + "\n"


def _not_stopped_early(rows: List[Dict[str, Any]]) -> List[str]:
    """Return the lines that name the runs that more epochs may change."""
    found: List[str] = []
    for row in rows:
        for model, name in MODELS.items():
            n_runs = row[model]["not_stopped_early"] if model in row else 0
            if n_runs:
                unit = "" if found else " run" if n_runs == 1 else " runs"
                found.append(f"{n_runs}{unit} of {row['task']} {name}")
    if not found:
        return []
    return [
        "",
        "Trained to the last epoch, not until the validation score had stopped getting better: "
        f"{', '.join(found)}. More epochs (`trainer.num_epochs`) may change their scores.",
    ]


def _line(cells: List[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _plus_minus(model: Dict[str, Any]) -> str:
    deviation: Optional[float] = model["std"]
    return f"{model['mean']:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def _with_error(delta: Optional[Dict[str, Any]]) -> str:
    if delta is None:
        return ""
    text = f"{delta['mean']:+.2f}"
    if delta["standard_error"] is None:
        return text
    if delta["beyond_two_standard_errors"]:
        text = f"**{text}**"
    return f"{text} ± {delta['standard_error']:.2f}"


def draw(rows: List[Dict[str, Any]], runs: Runs, folder: Path) -> None:
    """
    Draw `scores.png`, `curves.png` and `layer_weights.png`, the weight of each layer in each task.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    def save(figure: Any, name: str) -> None:
        with whole_file(folder / name) as staged:
            FigureCanvasAgg(figure).print_png(staged)

    names = [row["task"] for row in rows]
    figure = Figure(figsize=(1.5 + 1.5 * len(rows), 4), layout="constrained")
    axes = figure.subplots()
    models = [model for model in MODELS if any(model in row for row in rows)]
    width = 0.8 / len(models)
    for number, model in enumerate(models):
        places = [place for place, row in enumerate(rows) if model in row]
        axes.bar(
            [place + (number + 0.5) * width - 0.4 for place in places],
            [rows[place][model]["mean"] for place in places],
            yerr=[rows[place][model]["std"] or float("nan") for place in places],
            width=width,
            label=MODELS[model],
            color=_COLORS[model],
            capsize=3,
        )
    axes.set_xticks(range(len(rows)), [f"{row['task']}\n{row['score_name']}" for row in rows])
    axes.set_ylabel("test, %")
    axes.legend()
    save(figure, "scores.png")

    figure = Figure(figsize=(4 * len(rows), 3.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(rows), squeeze=False)[0], names):
        for model in models:
            for seed, result in enumerate(runs.get((name, model), [])):
                curve = result["curve"]
                axes.plot(
                    range(1, len(curve) + 1),
                    curve,
                    color=_COLORS[model],
                    marker=".",
                    label=None if seed else MODELS[model],
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
