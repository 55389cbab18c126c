"""The picture of the weights that tasks give to the layers of an ELMo."""

from typing import Any, Dict, List, Tuple

_LOW, _HIGH = 1 / 3, 2 / 3
"""Of three equal weights each is a third; the picture marks those below, and above two thirds."""


def places_of_mixes(n_mixes: int) -> List[str]:
    """Return where a model with so many scalar mixes, in its order, has ELMo."""
    # `elmo_output` sets the first representation beside the encoder's output.
    known = {1: ["input"], 2: ["output", "input"]}
    return known.get(n_mixes, [f"mix {number}" for number in range(1, n_mixes + 1)])


def columns_by_place(rows: List[Dict[str, Any]]) -> Dict[str, List[Tuple[str, List[float]]]]:
    """
    Return for each place of ELMo, the input first, the tasks that have it there with the weights of
    the layers, from `summarize`'s rows.
    """
    columns: Dict[str, List[Tuple[str, List[float]]]] = {"input": [], "output": []}
    for row in rows:
        mixes = row["layer_weights"]
        for place, mix in zip(places_of_mixes(len(mixes)), mixes):
            columns.setdefault(place, []).append((row["task"], mix))
    return {place: found for place, found in columns.items() if found}


def draw_layer_weights(columns: Dict[str, List[Tuple[str, List[float]]]]) -> Any:
    """
    Return a figure like figure 2 of Peters et al. (2018): a panel for each place of ELMo, in it a
    column for each task and a row for each layer. Weights below 1/3 are hatched, those above 2/3
    dotted.

    # Parameters

    columns : `Dict[str, List[Tuple[str, List[float]]]]`
        What `columns_by_place` returns, with at least one column.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    sizes = [len(found) for found in columns.values()]
    n_layers = max(len(mix) for found in columns.values() for _, mix in found)
    # A column is 0.75 inch, a row half an inch.
    figure = Figure(figsize=(1.8 + 0.75 * sum(sizes), 1.7 + 0.5 * n_layers), layout="constrained")
    ratios = {"width_ratios": sizes}
    panels = figure.subplots(1, len(sizes), squeeze=False, sharey=True, gridspec_kw=ratios)[0]
    for axes, (place, found) in zip(panels, columns.items()):
        missing = [float("nan")] * n_layers
        table = [(mix + missing)[:n_layers] for _, mix in found]
        layers = list(zip(*table))  # a row each
        image = axes.imshow(layers, vmin=0, vmax=1, cmap="Blues", aspect="auto", origin="lower")
        for x, weights in enumerate(table):
            for y, weight in enumerate(weights):
                hatch = "--" if weight < _LOW else ".." if weight > _HIGH else None
                corner = (x - 0.5, y - 0.5)
                axes.add_patch(
                    Rectangle(corner, 1, 1, fill=False, hatch=hatch, edgecolor="0.6", linewidth=0)
                )
                if weight == weight:  # A model may have fewer layers than another.
                    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
                    axes.text(x, y, f"{weight:.2f}", ha="center", va="center", bbox=box)
        names = [task for task, _ in found]
        axes.set_xticks(range(len(found)), names, rotation=40, ha="right", rotation_mode="anchor")
        axes.set_title(place)
    panels[0].set_yticks(
        range(n_layers), ["token layer", *(f"LSTM {layer}" for layer in range(1, n_layers))]
    )
    figure.colorbar(image, ax=list(panels), pad=0.02)
    return figure
