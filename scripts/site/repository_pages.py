"""
A hook of MkDocs. It makes the README the home page, and adds pages for files outside of docs/ that
a page links to. The pages' links work on GitHub; this hook turns them into those of the site.
"""

import json
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
HOME = "README.md"
PAGES = (HOME, "CHANGELOG.md", "CONTRIBUTING.md")

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#])")
_repository_paths: dict[str, str] = {}
"""The repository's file for each page, by the page's name in the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages for files outside of docs/."""
    _repository_paths.clear()
    for file in files.documentation_pages():
        _repository_paths[file.src_uri] = f"docs/{file.src_uri}"
    waiting = [*_repository_paths.values(), *PAGES]
    while waiting:
        path = waiting.pop()
        name = site_name(path)
        if files.get_file_from_path(name) is None:
            kind = InclusionLevel.UNDEFINED if path in PAGES else InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, name, content=page_text(path), inclusion=kind))
            _repository_paths[name] = path
        targets = links(path, page_text(path)).values()
        waiting += [each for each in targets if files.get_file_from_path(site_name(each)) is None]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of a page to files of the repository into links to pages."""
    folder = posixpath.dirname(page.file.src_uri)
    targets = links(_repository_paths[page.file.src_uri], markdown)
    uris = {link: posixpath.relpath(site_name(path), folder) for link, path in targets.items()}
    return _LINK.sub(lambda match: uris.get(match[1], match[1]), markdown)


def site_name(path: str) -> str:
    """Return the name in the site of a file or folder of the repository."""
    if path == HOME:
        return "index.md"
    if path.startswith("docs/"):
        return path[len("docs/") :]
    return path if path.endswith(".md") else f"{path}.md"


def page_text(path: str) -> str:
    """
    Return the Markdown of a page, the cells of a notebook, a code block of another file, or a list
    of the configs in a folder.
    """
    file = ROOT / path
    if file.is_dir():
        names = sorted(str(each.relative_to(file.parent)) for each in file.rglob("*.*sonnet"))
        return "\n".join([f"# {path}\n", *(f"- [{name}]({name})" for name in names)])
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    if file.suffix == ".ipynb":
        return notebook_text(text)
    language = "jsonnet" if file.suffix.endswith("sonnet") else "text"
    return f"# {path}\n\n{code_block(text.rstrip(), language)}\n"


def notebook_text(notebook: str) -> str:
    """Return the cells of a notebook and their outputs as Markdown."""
    parts = []
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else code_block(source, "python"))
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": output.get("text", [])})
            if "image/png" in data:
                parts.append(f"![](data:image/png;base64,{''.join(data['image/png']).strip()})")
            else:
                parts.append(code_block("".join(data.get("text/plain", [])).rstrip()))
    return "\n\n".join(parts)


def code_block(code: str, language: str = "text") -> str:
    """Return code as a block of Markdown."""
    return f"~~~~{language}\n{code}\n~~~~"


def links(path: str, text: str) -> dict[str, str]:
    """Return the repository's files that a page links to, by the links' text."""
    found = {}
    for match in _LINK.finditer(text):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
        if not target.startswith("..") and (ROOT / target).exists():
            found[match[1]] = target
    return found
