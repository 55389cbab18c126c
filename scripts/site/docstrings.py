"""
An extension of Griffe, which reads the docstrings for the API reference: it turns the sections of
AllenNLP's style (`# Parameters`), whose headings would be those of the page, into lists.
"""

import re
from typing import Any, List

from griffe import Extension, Object

_HEADING = re.compile(r"# (\w+)$")


class AllenNlpStyle(Extension):
    """Rewrites the docstring of each object."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_lists(obj.docstring.value)


def with_lists(docstring: str) -> str:
    """
    Return a docstring as Markdown without headings: in sections, each line with an indented text
    below it becomes an item of a list, and so does each parameter.
    """
    lines = docstring.splitlines()
    result: List[str] = []
    section = None
    is_code = False
    for line, following in zip(lines, [*lines[1:], ""]):
        is_code ^= line.startswith("```")
        heading = None if is_code else _HEADING.match(line)
        if heading is not None:
            section = heading[1]
            result.append(f"**{section}**")
        elif section is None or not line or line.startswith(" "):
            result.append(line)
        else:
            is_parameter = section == "Parameters" and " : " in line
            if is_parameter or following.startswith(" "):
                names, *kind = line.split(" : ", 1)
                name = f"**`{names}`**" if section == "Parameters" else names
                # An empty line ends the item before; two spaces are a line break.
                result += ["", f"- {' : '.join([name, *kind])}  "]
            else:
                result.append(line)
    return "\n".join(result)
