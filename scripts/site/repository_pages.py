"""
A hook of MkDocs: the README is the home page, and files outside of docs/ to which a page links are
pages, too. Links stay as the repository's browser needs them; here they are turned into the site's.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Dict, Iterator, Tuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
HOME = "README.md"
_CONFIGS = (".jsonnet", ".libsonnet")
PAGES = (HOME, "CHANGELOG.md", "CONTRIBUTING.md")

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#])")
_FILE_NAME = re.compile(r"\[[\w./]+\.md\](?=\(([^)#\s]+\.md)[)#])")
_repository_paths: Dict[str, str] = {}
"""The file of the repository of each page, by its name in the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from files outside of docs/."""
    docs = Path(config.docs_dir)
    _repository_paths.clear()
    for file in files.documentation_pages():
        _repository_paths[file.src_uri] = f"{docs.name}/{file.src_uri}"
    waiting = [*_repository_paths.values(), *PAGES]
    while waiting:
        path = waiting.pop()
        name, text = site_name(path), page_text(path)
        if files.get_file_from_path(name) is None:
            kind = InclusionLevel.UNDEFINED if path in PAGES else InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, name, content=text, inclusion=kind))
            _repository_paths[name] = path
        for _, target in links(path, text):
            if files.get_file_from_path(site_name(target)) is None:
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """
    Turn the links of a page to files of the repository into links to pages, named by their titles.
    """
    path = _repository_paths[page.file.src_uri]
    folder = posixpath.dirname(page.file.src_uri)
    targets = dict(links(path, markdown))

    def link(match: "re.Match[str]") -> str:
        target = targets.get(match[1])
        return match[1] if target is None else posixpath.relpath(site_name(target), folder)

    def name(match: "re.Match[str]") -> str:
        target = targets.get(match[1])
        return match[0] if target is None else f"[{title(target)}]"

    return _LINK.sub(link, _FILE_NAME.sub(name, markdown))


def site_name(path: str) -> str:
    """Return the name in the site of a file or folder of the repository."""
    if path == HOME:
        return "index.md"
    if path.startswith("docs/"):
        return path[len("docs/") :]
    return path if path.endswith(".md") else f"{path}.md"


def page_text(path: str) -> str:
    """
    Return the Markdown of a file: itself, the cells of a notebook, code in a block, or a list of
    the configs in a folder.
    """
    file = ROOT / path
    if file.is_dir():
        names = sorted(
            each.relative_to(file.parent).as_posix()
            for each in file.rglob("*")
            if each.is_file() and each.suffix in _CONFIGS
        )
        return "\n".join([f"# {path}\n", *(f"- [{name}]({name})" for name in names)])
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    if file.suffix == ".ipynb":
        return notebook_text(text)
    language = "jsonnet" if file.suffix in _CONFIGS else "text"
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


def title(path: str) -> str:
    """Return the first heading of a page."""
    return page_text(path).split("# ", 1)[1].splitlines()[0]


def links(path: str, text: str) -> Iterator[Tuple[str, str]]:
    """Yield the links of a page to files of the repository: as they stand, and from its root."""
    for match in _LINK.finditer(text):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
        if not target.startswith("..") and (ROOT / target).exists():
            yield match[1], target
