"""Figures of matplotlib, in files. By default they go with any background."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allennlp_elmo_plugin.files.atomic import PathLike, atomic_file

ENDINGS = (".svg", ".png", ".pdf")
PAGE_ENDINGS = (".html", ".htm")

GREY = "#7b8490"  # is seen on white and on black
_COLOURED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "elmo-plot",
    "text.parse_math": False,  # A dollar is a dollar.
    **dict.fromkeys(_COLOURED, GREY),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
}


def is_page(output: str) -> bool:
    return output.lower().endswith(PAGE_ENDINGS)


@contextmanager
def figure(
    path: PathLike, width: float, height: float, n_axes: int = 1, transparent: bool = True
) -> Iterator[Any]:
    """
    Yield the axes of a figure, or several from top to bottom, to draw on. The size is in inches.
    The figure, transparent or on white, is written to `path`, whose ending says in which format,
    the same each time.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        drawn = Figure(figsize=(width, height), layout="constrained")
        yield drawn.subplots(n_axes)
        with atomic_file(path) as staged:
            drawn.savefig(staged, transparent=transparent, dpi=160, metadata={"Date": None})
