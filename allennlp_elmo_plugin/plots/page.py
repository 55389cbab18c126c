"""HTML pages that need no other file and no network."""

import html
import re
from pathlib import Path
from typing import Any, Optional

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.files.json_file import to_json
from allennlp_elmo_plugin.files.whole import check_whole_file, whole_file

_PLACEHOLDER = re.compile(r"@@(\w+)@@")
_ENDINGS = (".html", ".htm")


def check_output(output: str) -> None:
    """Check that an output has the name of a page, and can be written."""
    if not output.lower().endswith(_ENDINGS):
        raise ConfigurationError(f"--output {output}: is a page; give a name that ends with .html")
    check_whole_file(output)


def write_page(output: str, template: str, title: str, data: Any, script: Optional[str]) -> None:
    """
    Write a page whole or not at all.

    # Parameters

    output : `str`
        The file.
    template : `str`
        The name of a file in this folder. In it, `@@title@@`, `@@data@@`, `@@script@@` and
        `@@style@@` are replaced.
    title : `str`
        Plain text.
    data : `Any`
        What the page shows, as JSON. It may have any text: it can't end the element it stands in.
    script : `str`, optional
        A library, as it is.
    """
    folder = Path(__file__).parent
    parts = {
        "title": html.escape(title),
        "data": to_json(data, indent=None).replace("<", "\\u003c"),
        "script": script or "",
        "style": (folder / "page.css").read_text(encoding="utf-8"),
    }
    page = (folder / template).read_text(encoding="utf-8")
    page = _PLACEHOLDER.sub(lambda found: parts[found[1]], page)
    with whole_file(output) as staged:
        # Only a file name in the title may have what UTF-8 can't express.
        Path(staged).write_text(page, encoding="utf-8", errors="xmlcharrefreplace")
