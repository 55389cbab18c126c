"""Tables and pictures of a benchmark's finished runs."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any, Dict, List, Optional, Sequence

from allennlp_elmo_plugin.benchmark.results import Runs, read_runs
from allennlp_elmo_plugin.benchmark.task import MODELS, TASKS, kind_of
from allennlp_elmo_plugin.files.json_file import to_json
from allennlp_elmo_plugin.files.whole import whole_file

# Where a model with one or two scalar mixes has ELMo: `elmo_output` sets the first representation
# beside the encoder's output.
_PLACES = {1: ["input"], 2: ["output", "input"]}


def write_tables(output: Path) -> str:
    """Write `results.json` and `results.md` of all finished runs. Return the latter."""
    rows = summarize(read_runs(output))
    table = markdown(rows)
    for name, text in (("results.json", to_json(rows)), ("results.md", table)):
        with whole_file(output / name) as staged:
            Path(staged).write_text(text, encoding="utf-8")
    return table


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
        row: Dict[str, Any] = {"task": name, **task._asdict(), "machines": []}
        for model in models:
            results = [run for run in runs[name, model] if run["seed"] in seeds]
            scores = [run["score"] for run in results]
            metrics = [100 * run["allennlp_metrics"][task.allennlp_metric] for run in results]
            row["machines"] += [run["machine"] for run in results]
            row[model] = {
                "mean": mean(scores),
                "std": stdev(scores) if len(scores) > 1 else None,
                "seeds": [run["seed"] for run in results],
                "allennlp_mean": mean(metrics),
                "seconds": mean(run["seconds"] for run in results),
                "epochs": mean(run["epochs"] for run in results),
                "not_stopped_early": sum(not run["stopped_early"] for run in results),
                "trained_parameters": results[0]["trained_parameters"],
            }
        mixes = zip(*(run["layer_weights"] for run in results))  # of ELMo, the last one
        row["layer_weights"] = [[mean(layer) for layer in zip(*mix)] for mix in mixes]
        row["deltas"] = {model: _delta(row, model) for model in models if model != "elmo"}
        row["delta"] = row["deltas"]["baseline"]["mean"]
        row["machines"] = list(dict.fromkeys(row["machines"]))
        rows.append(row)
    return rows


def _delta(row: Dict[str, Any], model: str) -> Dict[str, Any]:
    delta = row["elmo"]["mean"] - row[model]["mean"]
    error: Optional[float] = None
    n_seeds = len(row[model]["seeds"])
    if n_seeds > 1:
        error = ((row["elmo"]["std"] ** 2 + row[model]["std"] ** 2) / n_seeds) ** 0.5
    beyond = None if error is None else abs(delta) > 2 * error
    return {"mean": delta, "standard_error": error, "beyond_two_standard_errors": beyond}


def markdown(rows: List[Dict[str, Any]]) -> str:
    """Return the table."""
    models = [model for model in MODELS if any(model in row for row in rows)]
    others = [model for model in models if model != "elmo"]
    deltas = ["delta"] if len(others) < 2 else [f"delta to {MODELS[model]}" for model in others]
    columns = ["task", "score (test)", *(MODELS[model] for model in models), *deltas]
    columns += ["paper's delta", "seeds", "time a run"]
    lines = [_line(columns), "|" + "---|" * len(columns)]
    last: List[str] = []
    for row in rows:
        times = [f"{row[model]['seconds'] / 60:.1f}" for model in models if model in row]
        cells = [row["task"], row["score_name"]]
        cells += [_plus_minus(row[model]) if model in row else "" for model in models]
        cells += [_with_error(row["deltas"].get(model)) for model in others]
        cells.append("" if row["paper_delta"] is None else f"{row['paper_delta']:+.2f}")
        cells += [str(len(row["elmo"]["seeds"])), f"{' / '.join(times)} min"]
        lines.append(_line(cells))
        for model in models:
            if model in row and row[model]["not_stopped_early"]:
                last.append(f"{row[model]['not_stopped_early']} of {row['task']} {MODELS[model]}")
    titles = ["with ELMo" if model == "elmo" else MODELS[model] for model in models]
    machines = dict.fromkeys(machine for row in rows for machine in row["machines"])
    lines += [
        "",
        "Official scores in percent: mean and standard deviation over the seeds. Deltas: with "
        "their standard error, in bold if they are beyond two of them. Time: "
        f"{' / '.join(titles)}, which shares the vectors of its sentences between the runs.",
        "",
        f"Machine: {'; or '.join(machines)}.",
    ]
    if last:
        lines += [
            "",
            "Runs that ended at the last epoch, not because the validation score had stopped "
            f"getting better: {', '.join(last)}. More epochs (`trainer.num_epochs`) may change "
            "their scores.",
        ]
    return "\n".join(lines) + "\n"


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


def draw(output: Path) -> None:
    """
    Draw `scores.png`, `curves.png` (validation scores) and `layer_weights.png` (the weight of each
    layer in each task) of all finished runs.
    """
    from matplotlib.figure import Figure

    runs = read_runs(output)
    rows = summarize(runs)
    models = [model for model in MODELS if any(model in row for row in rows)]
    none = {"mean": None, "std": None}

    scores = Figure(figsize=(1.5 + 1.5 * len(rows), 4), layout="constrained")
    draw_bars(
        scores.subplots(),
        [f"{row['task']}\n{row['score_name']}" for row in rows],
        {MODELS[model]: [row.get(model, none)["mean"] for row in rows] for model in models},
        {MODELS[model]: [row.get(model, none)["std"] for row in rows] for model in models},
    )
    scores.axes[0].set_ylabel("test, %")
    scores.axes[0].legend()

    curves = Figure(figsize=(4 * len(rows), 3.2), layout="constrained")
    for axes, row in zip(curves.subplots(1, len(rows), squeeze=False)[0], rows):
        for number, model in enumerate(models):
            for run in runs.get((row["task"], model), []):
                epochs = range(1, len(run["curve"]) + 1)
                axes.plot(epochs, run["curve"], f"C{number}.-", label=MODELS[model])
        axes.set(title=row["task"], xlabel="epoch", ylabel="validation, %")
    handles, labels = curves.axes[0].get_legend_handles_labels()
    by_label = dict(zip(labels, handles))
    curves.axes[0].legend(by_label.values(), by_label)

    figures = {"scores.png": scores, "curves.png": curves}
    weights = weights_by_place(rows)
    if weights:  # A user's configs may have no mix.
        figures["layer_weights.png"] = draw_layer_weights(weights)
    for name, figure in figures.items():
        with whole_file(output / name) as staged:
            figure.savefig(staged, format="png")


def weights_by_place(rows: List[Dict[str, Any]]) -> Dict[str, Dict[str, List[float]]]:
    """Return by place of ELMo and by task the weights of the layers, from `summarize`'s rows."""
    found: Dict[str, Dict[str, List[float]]] = {}
    for row in rows:
        mixes = row["layer_weights"]
        numbers = [f"mix {number}" for number in range(1, len(mixes) + 1)]
        for place, mix in zip(_PLACES.get(len(mixes), numbers), mixes):
            found.setdefault(place, {})[row["task"]] = mix
    return dict(sorted(found.items()))


def draw_layer_weights(weights: Dict[str, Dict[str, List[float]]]) -> Any:
    """Return a figure with a panel for each place of ELMo, from what `weights_by_place` returns."""
    from matplotlib.figure import Figure

    sizes = [len(mixes) for mixes in weights.values()]
    n_layers = max(len(mix) for mixes in weights.values() for mix in mixes.values())
    names = ["token layer", *(f"LSTM {layer}" for layer in range(1, n_layers))]
    figure = Figure(figsize=(1.8 + 0.35 * n_layers * sum(sizes), 3.5), layout="constrained")
    panels = figure.subplots(1, len(sizes), squeeze=False, sharey=True, width_ratios=sizes)[0]
    for axes, (place, mixes) in zip(panels, weights.items()):
        # A model may have fewer layers than another.
        padded = [[*mix, *[None] * (n_layers - len(mix))] for mix in mixes.values()]
        draw_bars(axes, list(mixes), dict(zip(names, zip(*padded))))
        axes.set_title(place)
        axes.tick_params(axis="x", rotation=40)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def draw_bars(
    axes: Any,
    groups: Sequence[str],
    bars: Dict[str, Sequence[Optional[float]]],
    errors: Optional[Dict[str, Sequence[Optional[float]]]] = None,
) -> None:
    """Draw groups of bars with their values over them; `None` is a bar that is missing."""
    width = 0.9 / len(bars)
    for number, (label, values) in enumerate(bars.items()):
        places = [place + (number + 0.5) * width - 0.45 for place in range(len(groups))]
        heights = [float("nan") if value is None else value for value in values]
        deviations = errors and [value or float("nan") for value in errors[label]]
        drawn = axes.bar(places, heights, width, yerr=deviations, label=label, capsize=3)
        texts = ["" if value is None else f"{value:.3g}" for value in values]
        axes.bar_label(drawn, texts, fontsize=7, padding=1)
    axes.set_xticks(range(len(groups)), groups)
