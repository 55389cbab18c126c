"""
The pages of the documentation: their commands parse, programs and files exist, configs can be
evaluated and built, Python runs and prints what the page says, and links lead somewhere.

A comment before a block says what the page doesn't show: `<!-- not run: the reason -->`, or
`<!-- file: my_config.jsonnet -->`, the name of a file that a later command reads.
"""

import importlib.util
import io
import json
import re
import shlex
import shutil
import tomllib
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple
from urllib.parse import urldefrag

import pytest
from allennlp.commands import parse_args
from allennlp.common import Params
from allennlp.data import TokenIndexer
from allennlp.modules import TokenEmbedder

import allennlp_elmo_plugin
from tests.conftest import REPOSITORY_ROOT as ROOT
from tests.conftest import import_plugins_once
from tests.support.task_data import FIXTURES
from tests.support.testing import write_random_elmo

PAGES = [
    *(
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "allennlp_elmo_plugin/pretrained/tiny/README.md",
    ),
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]
TASKS = {"SRL": "srl", "NER": "ner.txt", "COREF": "coref.gold_conll", "SNLI": "snli.jsonl"}
NOT_INSTALLED = ("fugashi", "my_ner")
"""What Python in the documentation needs and the tests don't have."""


class Block(NamedTuple):
    """A block of a page: the line of its first fence, and the comments before it."""

    line: int
    language: str
    code: str
    notes: Dict[str, str]


def read_blocks(text: str) -> Iterator[Block]:
    fences = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
    assert len(re.findall("^ *(?:```|~~~)", text, re.MULTILINE)) == 2 * len(fences.findall(text))
    for match in fences.finditer(text):
        before = text[: match.start()]
        comments = re.findall(
            r"<!-- (.*?): (.*?) -->", re.findall(r"(?:<!--[^>]*-->\s*)*\Z", before)[0]
        )
        assert {key for key, _ in comments} <= {"not run", "file"}, comments
        yield Block(before.count("\n") + 1, match[2], match[3], dict(comments))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as readers have it."""
    import_plugins_once()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_elmo").mkdir()
    write_random_elmo(tmp_path / "my_elmo")
    shutil.copytree(ROOT / "training_config", tmp_path / "training_config")
    for name in ("srl/srl", "coref/coref", "snli/esim"):
        config = f"import 'training_config/{name}.jsonnet'"
        (tmp_path / f"{Path(name).stem}.jsonnet").write_text(config, encoding="utf-8")
    (tmp_path / "sentences.txt").write_text("One sentence .\nAnother one .\n", encoding="utf-8")
    with open("sentences.txt", "rb") as file:
        embedder = allennlp_elmo_plugin.ElmoEmbedder("my_elmo")
        embedder.embed_file(file, "layers.hdf5", "top", batch_size=None)
    monkeypatch.setenv("ELMO", "tiny")
    for task, name in TASKS.items():
        for split in ("TRAIN", "VALIDATION"):
            monkeypatch.setenv(f"{task}_{split}_DATA_PATH", str(FIXTURES / name))
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_works(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = ""
    for block in read_blocks((ROOT / page).read_text(encoding="utf-8")):
        try:
            if "not run" in block.notes:
                continue
            if block.language == "bash":
                for argv in commands(block.code):
                    check_command(argv, monkeypatch)
            elif block.language == "python":
                printed = run_python(block.code)
            elif block.language in ("json", "jsonnet"):
                name = block.notes.get("file", "block.jsonnet")
                (folder / name).write_text(whole_config(block.code), encoding="utf-8")
                if "file" not in block.notes:
                    build_config(Params.from_file(name).as_dict(quiet=True))
            elif not block.language and printed:
                assert block.code == printed
                printed = ""
        except (Exception, SystemExit) as error:
            pytest.fail(f"{page}, line {block.line}: {type(error).__name__}: {error}")


def commands(code: str) -> Iterator[List[str]]:
    """Yield the programs of a block with their arguments."""
    code = re.sub(r"(?m)(?:^|\s+)# .*$", "", code.replace("\\\n", " "))
    lexer = shlex.shlex(code, posix=True, punctuation_chars=";|&()<>\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    argv: List[str] = []
    for token in [*lexer, ";"]:
        if set(token) <= set(";|&()<>\n"):
            while argv and (argv[0] in ("export", "do", "then") or re.match(r"\w+=", argv[0])):
                del argv[0]
            if argv:
                yield argv
            argv = ["redirected to"] if set(token) <= set("<>") else []
        else:
            argv.append(token)


def check_command(argv: List[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse a command of AllenNLP; check that other programs exist and know their options."""
    program, *arguments = argv
    if program == "allennlp":
        monkeypatch.setattr("sys.argv", argv)
        monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
        _, parsed = parse_args()
        json.loads(getattr(parsed, "overrides", None) or "{}")
        for name in re.findall(r"training_config/\S+net\b", " ".join(argv)):
            assert Path(name).exists(), name
    elif program == "python" and arguments[0] == "-m":
        spec = importlib.util.find_spec(arguments[1])
        assert spec is not None and spec.origin is not None, arguments[1]
        path = Path(spec.origin)
        check_options(path.with_name("__main__.py") if path.stem == "__init__" else path, argv)
    elif program in ("python", "bash") and arguments[0].startswith("scripts/"):
        check_options(ROOT / arguments[0], arguments)
    elif program == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for name in filter(str.isidentifier, arguments):
            assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
    elif program in ("pip", "uv"):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        for extra in re.findall(r"\.\[(\w+)\]", " ".join(arguments)):
            assert extra in project["project"]["optional-dependencies"], extra


def check_options(path: Path, arguments: List[str]) -> None:
    text = path.read_text(encoding="utf-8")
    for option in arguments:
        assert not option.startswith("--") or f'"{option}"' in text, f"{path.name}: {option}"


def run_python(code: str) -> str:
    """Run a block, and return what it prints."""
    printed = io.StringIO()
    if not any(name in code for name in NOT_INSTALLED):
        with redirect_stdout(printed):
            exec(code, {})
    return printed.getvalue()


def whole_config(code: str) -> str:
    """Return a part of a config as a whole that can be evaluated; `...` is what is left out."""
    code = re.sub(r",?\s*\.\.\.", ",", code.strip())
    if "local elmo =" not in code and "elmo." in code:
        code = f"local elmo = import 'elmo.libsonnet';\n{code}"
    if code.endswith(";"):
        return code + re.findall(r"local (\w+)", code)[-1]
    return f"{{ {code} }}" if re.match(r'"?\w+"?\+?:', code) else code


def build_config(config: Any) -> None:
    """Build the token indexers and embedders of a config."""
    for key, kind in (("token_indexers", TokenIndexer), ("token_embedders", TokenEmbedder)):
        for section in config.get(key, {}).values():
            kind.from_params(Params(section))  # type: ignore[attr-defined]


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> List[str]:
    """Return the anchors that a repository's browser gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    file = ROOT / page
    for link in re.findall(r"\]\(([^)\s]+)\)", without_blocks(file.read_text(encoding="utf-8"))):
        target, anchor = urldefrag(link)
        if "://" not in target:
            found = file.parent / target if target else file
            assert found.exists(), link
            assert not anchor or anchor in anchors(found.read_text(encoding="utf-8")), link


def test_files_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in re.findall(r"`([\w/]+(?:/|\.py))`", text):
        assert (ROOT / "allennlp_elmo_plugin" / name).exists() or (ROOT / name).exists(), name
