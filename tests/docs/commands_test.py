"""
The documentation, page by page: its commands parse, their programs and files exist, its configs can
be evaluated, and its Python runs and prints what the page says.

A comment before a block says what the page doesn't show:

- `<!-- not run: needs several GPUs -->`: the block can't be checked, with the reason.
- `<!-- given: my_elmo, my_model -->`: the page presupposes these.
- `<!-- file: my_config.jsonnet -->`: the name of a file, which a later command reads.
- `<!-- part of: training_config/srl/srl.jsonnet -->`: a config that has all that is in the block.
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

import pytest
from allennlp.commands import parse_args
from allennlp.common import Params
from allennlp.data import TokenIndexer
from allennlp.modules import TokenEmbedder

import allennlp_elmo_plugin
from tests.conftest import REPOSITORY_ROOT, import_plugins_once
from tests.support.task_data import FIXTURES
from tests.support.testing import write_random_elmo

PAGES = [
    *("README.md", "CONTRIBUTING.md", "allennlp_elmo_plugin/pretrained/tiny/README.md"),
    *sorted(f"docs/{path.name}" for path in (REPOSITORY_ROOT / "docs").glob("*.md")),
]
TASKS = {"SRL": "srl", "NER": "ner.txt", "COREF": "coref.gold_conll", "SNLI": "snli.jsonl"}
UNCHECKED = ("fugashi", "my_ner")
"""What Python in the documentation may need and the tests don't have."""


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
        indent, language, code = match.groups()
        code = re.sub(f"^{indent}", "", code, flags=re.MULTILINE)
        before = text[: match.start()]
        comments = re.findall("<!--(.*?)-->", re.findall(r"(?:<!--[^>]*-->\s*)*\Z", before)[0])
        notes = dict(re.split(r":\s*", f"{each.strip()}:", maxsplit=1) for each in comments)
        notes = {key: value.rstrip(":") for key, value in notes.items()}
        unknown = notes.keys() - {"not run", "given", "file", "part of"}
        assert not unknown, f"line {before.count(chr(10)) + 1}: {unknown}"
        yield Block(before.count("\n") + 1, language, code, notes)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as readers have it."""
    import_plugins_once()
    for name in ("my_elmo", "elmo"):
        (tmp_path / name).mkdir()
        write_random_elmo(tmp_path / name)
    (tmp_path / "sentences.txt").write_text("One sentence .\nAnother one .\n", encoding="utf-8")
    shutil.copytree(REPOSITORY_ROOT / "training_config", tmp_path / "training_config")
    for name in ("srl/srl", "coref/coref", "snli/esim"):
        config = f"import 'training_config/{name}.jsonnet'"
        (tmp_path / f"{Path(name).stem}.jsonnet").write_text(config, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with open("sentences.txt", "rb") as file:
        embedder = allennlp_elmo_plugin.ElmoEmbedder("my_elmo")
        embedder.embed_file(file, "layers.hdf5", "top", batch_size=None)
    monkeypatch.setenv("ELMO", "tiny")
    for task, name in TASKS.items():
        for split in ("TRAIN", "VALIDATION"):
            monkeypatch.setenv(f"{task}_{split}_DATA_PATH", str(FIXTURES / name))
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = []
    printed = ""
    for block in read_blocks((REPOSITORY_ROOT / page).read_text(encoding="utf-8")):
        try:
            if "not run" in block.notes:
                assert len(block.notes["not run"].split()) > 1, "`not run` has no reason"
            elif block.language == "bash":
                for argv in commands(block.code):
                    check_command(argv, monkeypatch)
            elif block.language == "python":
                printed = run_python(block)
            elif block.language in ("json", "jsonnet"):
                name = block.notes.get("file", "block.jsonnet")
                (folder / name).write_text(whole_config(block.code), encoding="utf-8")
                if "file" not in block.notes:
                    check_config(name, block.notes.get("part of"))
            elif not block.language and printed:
                assert block.code == printed
                printed = ""
        except (Exception, SystemExit) as error:
            failures.append(f"{page}, line {block.line}: {type(error).__name__}: {error}")
    assert not failures, "\n\n".join(failures)


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
        _, parsed = parse_args()
        json.loads(getattr(parsed, "overrides", None) or "{}")
        for name in re.findall(r"training_config/\S+net\b", " ".join(argv)):
            assert Path(name).exists(), name
    elif program == "python" and arguments[0] == "-m":
        spec = importlib.util.find_spec(arguments[1])
        assert spec is not None and spec.origin is not None, arguments[1]
        if arguments[1].startswith(("speed", "tests")):
            path = Path(spec.origin)
            check_options(path.with_name("__main__.py") if path.stem == "__init__" else path, argv)
    elif program in ("python", "bash") and arguments[0].startswith("scripts/"):
        check_options(REPOSITORY_ROOT / arguments[0], arguments)
    elif program == "make":
        makefile = (REPOSITORY_ROOT / "Makefile").read_text(encoding="utf-8")
        for name in filter(str.isidentifier, arguments):
            assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
    elif program == "pip":
        project = tomllib.loads((REPOSITORY_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        for extra in re.findall(r"(?:plugin|\.)\[(\w+)\]", " ".join(arguments)):
            assert extra in project["project"]["optional-dependencies"], extra


def check_options(path: Path, arguments: List[str]) -> None:
    text = path.read_text(encoding="utf-8")
    for option in arguments:
        assert not option.startswith("--") or f'"{option}"' in text, f"{path.name}: {option}"


def run_python(block: Block) -> str:
    """Run a block, and return what it prints."""
    code = compile(block.code, f"line {block.line}", "exec")
    printed = io.StringIO()
    if not any(name in block.code for name in UNCHECKED):
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


def check_config(name: str, part_of: Any) -> None:
    """Evaluate a config, and use it as far as it is one."""
    config = Params.from_file(name).as_dict(quiet=True)
    for key, kind in (("token_indexers", TokenIndexer), ("token_embedders", TokenEmbedder)):
        for section in config.get(key, {}).values():
            kind.from_params(Params(json.loads(json.dumps(section))))  # type: ignore[attr-defined]
    if config.get("type") == "elmo_token_embedder":
        TokenEmbedder.from_params(Params(config))
    if part_of is not None:
        assert_part(config, Params.from_file(part_of).as_dict(quiet=True))


def assert_part(part: Any, whole: Any) -> None:
    if isinstance(part, dict):
        for key, value in part.items():
            assert_part(value, whole[key])
    else:
        assert part == whole
