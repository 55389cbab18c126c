"""
The pages of the documentation: their commands can be parsed, their scripts and configs exist,
configs can be built, and Python runs and prints what the page says. `make docs` checks links.

A comment before a block is an instruction for the tests: `<!-- not run: the reason -->`, or
`<!-- file: my_config.jsonnet -->`, the name of a file that a later command reads.
"""

import io
import json
import re
import shlex
import shutil
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import pytest
from allennlp.commands import parse_args
from allennlp.common import Params
from allennlp.data import TokenIndexer
from allennlp.modules import TokenEmbedder
from mkdocs.commands.build import build
from mkdocs.config import load_config

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.files import hdf5_file, json_file
from allennlp_elmo_plugin.pretrained.checkpoints import tensorflow_checkpoint
from allennlp_elmo_plugin.text import lines
from tests.conftest import REPOSITORY_ROOT as ROOT
from tests.conftest import import_plugins_once
from tests.support.corpora import write_text
from tests.support.task_data import FIXTURES
from tests.support.testing import write_random_elmo

PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").glob("*.md")),
]
PAGES.append(ROOT / "allennlp_elmo_plugin" / "pretrained" / "tiny" / "README.md")
BLOCK = re.compile(r"(?:<!-- (not run|file): ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S)
TASKS = {"SRL": "srl", "NER": "ner.txt", "COREF": "coref.gold_conll", "SNLI": "snli.jsonl"}
OPTIONAL = ("accelerate", "datasets", "fugashi", "gensim", "lightning", "pandas")
OPTIONAL += ("sentence_transformers",)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder as readers have it."""
    import_plugins_once()
    monkeypatch.chdir(tmp_path)
    write_random_elmo(tmp_path / "my_elmo")
    shutil.copytree(ROOT / "training_config", tmp_path / "training_config")
    for name in ("srl/srl", "coref/coref", "snli/esim"):
        config = f"import 'training_config/{name}.jsonnet'"
        (tmp_path / f"{Path(name).stem}.jsonnet").write_text(config, encoding="utf-8")
    (tmp_path / "sentences.txt").write_text("One sentence .\nAnother one .\n")
    for name in ("my_train.txt", "my_valid.txt"):
        write_text(tmp_path / name, 0, 40)
    make_vocabulary("my_train.txt", "my_vocab")
    shutil.copy("my_vocab/vocab.txt", "my_elmo")
    with open("sentences.txt", "rb") as file:
        ElmoEmbedder("my_elmo").embed_file(file, "layers.hdf5", "top", batch_size=None)
    monkeypatch.setenv("ELMO", "tiny")
    for task, name in TASKS.items():
        for split in ("TRAIN", "VALIDATION"):
            monkeypatch.setenv(f"{task}_{split}_DATA_PATH", str(FIXTURES / name))
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_works(page, folder, monkeypatch):
    text = page.read_text(encoding="utf-8")
    printed, names = "", {}  # Blocks go on with the names of those before.
    for match in BLOCK.finditer(text):
        note, name, language, code = match.groups()
        if note == "not run":
            continue
        try:
            if language == "bash":
                for argv in commands(code):
                    check_command(argv, monkeypatch)
            elif language == "python" and not lacks_package(code):
                with redirect_stdout(io.StringIO()) as output:
                    exec(code, names)
                printed = output.getvalue()
            elif language in ("json", "jsonnet"):
                Path(name or "block.jsonnet").write_text(whole_config(code), encoding="utf-8")
                if not name:
                    build_config(Params.from_file("block.jsonnet").as_dict(quiet=True))
            elif not language and printed:
                assert code == printed
                printed = ""
        except (Exception, SystemExit) as error:
            line = text[: match.start()].count("\n") + 1
            pytest.fail(f"{page}, line {line}: {type(error).__name__}: {error}")


@pytest.mark.filterwarnings("ignore:unclosed file .*raw.txt:ResourceWarning")
def test_raw_text_is_tokenised_and_divided(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw = "They play on\nthe beach, again!  Why?\n\nA heading\n\n" + "The end of (1). " * 20
    Path("raw.txt").write_text(raw, encoding="utf-8")
    page = (ROOT / "docs" / "pretraining.md").read_text(encoding="utf-8")
    (code,) = (block[4] for block in BLOCK.finditer(page) if "raw.txt" in block[4])
    names = {}
    exec(code, names)
    for file in names["files"]:
        file.close()
    parts = [Path(f"my_{part}.txt").read_text().splitlines() for part in ("valid", "test", "train")]
    assert parts[0] == ["They play on the beach , again !", "The end of ( 1 ) ."]
    assert parts[1][0] == "Why ?" and parts[2][0] == "A heading" and len(parts[2]) == 19


def lacks_package(code):
    """Whether a block needs a package or an archive that the tests' environment may lack."""
    imported = re.findall(r"^(?:import|from) (\w+)", code, re.M)
    return "my_ner" in code or any(
        name in OPTIONAL and find_spec(name) is None for name in imported
    )


def commands(code):
    """Yield the programs of a block with their arguments."""
    code = re.sub(r"(?m)(?:^|\s+)# .*$", "", code.replace("\\\n", " "))
    code = re.sub(r"\$\w+", "1", code)
    lexer = shlex.shlex(code, posix=True, punctuation_chars=";|&()<>\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    argv = []
    for token in [*lexer, ";"]:
        if set(token) <= set(";|&()<>\n"):
            while argv and (argv[0] in ("export", "do", "then") or re.match(r"\w+=", argv[0])):
                del argv[0]
            if argv:
                yield argv
            argv = ["redirected to"] if set(token) <= set("<>") else []
        else:
            argv.append(token)


def check_command(argv, monkeypatch):
    """Parse a command of AllenNLP or the plugin. Check that scripts have the given options."""
    if argv[0] == "allennlp-elmo-plugin" and argv[1][0] != "-":
        argv = ["allennlp", *argv[1:]]  # The commands are the same.
    if argv[0] == "allennlp":
        monkeypatch.setattr("sys.argv", argv)
        monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
        _, parsed = parse_args()
        json.loads(getattr(parsed, "overrides", None) or "{}")
        for name in re.findall(r"training_config/\S+net\b", " ".join(argv)):
            assert Path(name).exists(), name
    elif argv[0] in ("python", "bash") and argv[1].startswith("scripts/"):
        script = (ROOT / argv[1]).read_text(encoding="utf-8")
        for option in argv:
            assert not option.startswith("--") or f'"{option}"' in script, option


def whole_config(code):
    """Complete a part of a config, so that it can be evaluated; `...` stands for other parts."""
    code = re.sub(r",?\s*\.\.\.", ",", code.strip())
    if "local elmo =" not in code and "elmo." in code:
        code = f"local elmo = import 'elmo.libsonnet';\n{code}"
    if code.endswith(";"):
        return code + re.findall(r"local (\w+)", code)[-1]
    return f"{{ {code} }}" if re.match(r'"?\w+"?\+?:', code) else code


def build_config(config):
    """Build the token indexers and embedders of a config."""
    for key, kind in (("token_indexers", TokenIndexer), ("token_embedders", TokenEmbedder)):
        for section in config.get(key, {}).values():
            kind.from_params(Params(section))


def test_files_that_the_architecture_names_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in re.findall(r"`([\w/]+(?:/|\.py))`", text):
        assert (ROOT / "allennlp_elmo_plugin" / name).exists() or (ROOT / name).exists(), name


def test_limits_of_files_are_those_of_the_code():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    times, least = hdf5_file.MAX_EXPANSION, hdf5_file.allowance(0) >> 20
    names, dimensions = tensorflow_checkpoint._MAX_NAME_BYTES, tensorflow_checkpoint._MAX_DIMENSIONS
    for row in (
        f"| JSON | {json_file.MAX_BYTES >> 20} MiB; no NaN or infinity, no key twice |",
        f"`vocab.txt.gz` | {least} MiB or {times} times the file's size, whichever is more |",
        f"| {tensorflow_checkpoint._MAX_INDEX_BYTES >> 20} MiB; {names:,} bytes in the "
        f"name of a variable; {dimensions} dimensions in its shape |",
        f"| line of a text or vocabulary | {lines.MAX_LINE_BYTES >> 20} MiB |",
    ):
        assert row in page


@pytest.mark.nightly
def test_the_site_is_built_and_needs_no_other_host(tmp_path):
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    for name in ("index", "api", "training_config/squad/bidaf_elmo.jsonnet"):
        text = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        assert 'iframe-worker.js"' in text  # Search works in a folder.
        assert not re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=.?(?:https?:)?//", text)
    index = (tmp_path / "search" / "search_index.js").read_text(encoding="utf-8")
    assert index.startswith("var __index = {")
