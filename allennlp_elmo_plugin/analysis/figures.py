"""Figures of matplotlib that go with any background, in files."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allennlp_elmo_plugin.files.atomic import PathLike, atomic_file

ENDINGS = (".svg", ".png", ".pdf")
PAGE_ENDINGS = (".html", ".htm")

_COLOURED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "elmo-plot",
    "text.parse_math": False,  # A dollar is a dollar.
    **dict.fromkeys(_COLOURED, "#7b8490"),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
}


def is_page(output: str) -> bool:
    return output.lower().endswith(PAGE_ENDINGS)


@contextmanager
def figure(path: PathLike, width: float, height: float, n_axes: int = 1) -> Iterator[Any]:
    """
    Yield the axes of a figure, or several from top to bottom, to draw on. The size is in inches.
    The figure is written to `path`, whose ending says in which format, the same each time.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        drawn = Figure(figsize=(width, height), layout="constrained")
        yield drawn.subplots(n_axes)
        with atomic_file(path) as staged:
            drawn.savefig(staged, transparent=True, dpi=160, metadata={"Date": None})
