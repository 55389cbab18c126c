"""The picture of the weights that tasks give to the layers of an ELMo."""

from typing import Any, Dict, List, Tuple

# Where a model with one or two scalar mixes has ELMo: `elmo_output` sets the first representation
# beside the encoder's output.
_PLACES = {1: ["input"], 2: ["output", "input"]}


def columns_by_place(rows: List[Dict[str, Any]]) -> Dict[str, List[Tuple[str, List[float]]]]:
    """
    Return for each place of ELMo, the input first, the tasks that have it there with the weights of
    the layers, from `summarize`'s rows.
    """
    columns: Dict[str, List[Tuple[str, List[float]]]] = {"input": [], "output": []}
    for row in rows:
        mixes = row["layer_weights"]
        other_places = [f"mix {number}" for number in range(1, len(mixes) + 1)]
        for place, mix in zip(_PLACES.get(len(mixes), other_places), mixes):
            columns.setdefault(place, []).append((row["task"], mix))
    return {place: found for place, found in columns.items() if found}


def draw_layer_weights(columns: Dict[str, List[Tuple[str, List[float]]]]) -> Any:
    """
    Return a figure with a panel for each place of ELMo, in it a group of bars for each task, and in
    that a bar for each layer.

    # Parameters

    columns : `Dict[str, List[Tuple[str, List[float]]]]`
        What `columns_by_place` returns, with at least one column.
    """
    from matplotlib.figure import Figure

    sizes = [len(found) for found in columns.values()]
    n_layers = max(len(mix) for found in columns.values() for _, mix in found)
    figure = Figure(figsize=(1.8 + 0.35 * n_layers * sum(sizes), 3.5), layout="constrained")
    ratios = {"width_ratios": sizes}
    panels = figure.subplots(1, len(sizes), squeeze=False, sharey=True, gridspec_kw=ratios)[0]
    width = 0.9 / n_layers
    for axes, (place, found) in zip(panels, columns.items()):
        for layer in range(n_layers):
            bars = axes.bar(
                [x + (layer + 0.5) * width - 0.45 for x in range(len(found))],
                # A model may have fewer layers than another.
                [mix[layer] if layer < len(mix) else float("nan") for _, mix in found],
                width=width,
                color=f"C{layer}",
                label=f"LSTM {layer}" if layer else "token layer",
            )
            axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=1)
        names = [task for task, _ in found]
        axes.set_xticks(range(len(found)), names, rotation=40, ha="right", rotation_mode="anchor")
        axes.set_title(place)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return figure
