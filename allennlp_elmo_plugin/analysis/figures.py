"""Figures of matplotlib that go with any background, in files."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from allennlp_elmo_plugin.files.whole import PathLike, whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".svg", ".png", ".pdf")

_COLOURED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "elmo-plot",
    "text.parse_math": False,  # A dollar is a dollar.
    **dict.fromkeys(_COLOURED, "#7b8490"),
}


@contextmanager
def figure(path: PathLike, width: float, height: float) -> Iterator["Figure"]:
    """
    Yield a figure of a size in inches to draw on. It is written to `path`, whose ending says in
    which format, the same each time.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        drawn = Figure(figsize=(width, height), layout="constrained")
        yield drawn
        with whole_file(path) as staged:
            drawn.savefig(staged, transparent=True, dpi=160, metadata={"Date": None})
