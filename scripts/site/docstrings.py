"""
An extension of Griffe, which reads docstrings for the API reference. It turns the sections of
AllenNLP's style (`# Parameters`) into lists, because their headings would become the page's.
"""

import re
from typing import Any

from griffe import Extension, Object


class AllenNlpStyle(Extension):
    """Rewrites the docstring of each object."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_lists(obj.docstring.value)


def with_lists(docstring: str) -> str:
    """
    Return a docstring as Markdown without headings. Each parameter, and each line with indented
    text below it, becomes an item of a list.
    """
    text = re.sub(r"^# (\w+)$", r"**\1**", docstring, flags=re.M)
    # An empty line ends the item before; two spaces are a line break.
    text = re.sub(r"^(\w[\w, *]*) : (.*)$", r"\n- **`\1`** : \2  ", text, flags=re.M)
    return re.sub(r"^(\w[\w, ]*|`.+`)(?=\n    )", r"\n- \1  ", text, flags=re.M)
