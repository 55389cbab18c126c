"""
The commands and code of the documentation, page by page, as their reader runs them: in order, in
one folder. Only sizes are smaller (`with_small_sizes`), and what isn't on this machine is replaced.

A comment before a block says what the page doesn't show:

- `<!-- not run: needs several GPUs -->`: the block can't be run, or is an output that can't be
  compared; with the reason.
- `<!-- given: my_elmo, my_model -->`: the page presupposes these, made by `MAKE_MODELS`.
- `<!-- file: my_config.jsonnet -->`: the name of a file, which a later command reads.
- `<!-- part of: training_config/srl/srl.jsonnet -->`: a config that has all that is in the block.

A block without language is the output of the block before, or a session with `$` before commands.
Numbers, paths and names of files may differ there, except in the output of Python code.
"""

import functools
import importlib.metadata
import json
import os
import re
import shutil
import types
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import matplotlib
import pytest
import torch
from allennlp.commands import train as train_command
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.data import TokenIndexer
from allennlp.modules import TokenEmbedder

from speed.workload import Corpus
from tests.conftest import REPOSITORY_ROOT, import_plugins_once
from tests.support.forked_programs import Shell
from tests.support.fugashi_stand_in import stand_in_for_fugashi
from tests.support.gensim_stand_in import stand_in_for_gensim
from tests.support.readers_files import MAKE_MODELS, write_readers_files
from tests.support.task_data import FIXTURES

PAGES = [
    *("README.md", "CONTRIBUTING.md", "allennlp_elmo_plugin/pretrained/tiny/README.md"),
    *sorted(f"docs/{path.name}" for path in (REPOSITORY_ROOT / "docs").glob("*.md")),
]
TASKS = {"SRL": "srl", "NER": "ner.txt", "COREF": "coref.gold_conll", "SNLI": "snli.jsonl"}
SMALL_ARGUMENTS = {
    "speed": "--sizes tiny --rounds 1",
    "speed.distributed": "--size tiny --vocabularies 10000 --processes 1,2 --steps 1 "
    "--batch-size 8",
    "speed.pipeline": "--words 40000 --distinct 500",
    "tests.fuzz.readers": "--cases 30",
    "scripts/word_vectors.py": "--dim 8 --epochs 1 --min-count 1",
}


class Block(NamedTuple):
    """
    A block of a page.

    # Parameters

    line : `int`
        That of its first fence.
    language, code : `str`
    notes : `Dict[str, str]`
        The comments before it: what is before their colons, and what is after.
    """

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


def with_small_sizes(argv: List[str]) -> List[str]:
    """
    Return the arguments of a command, changed so that it trains small models for a short time; what
    isn't on this machine (GPUs) is replaced.
    """
    program = argv[0]
    if program == "python":
        name = argv[2] if argv[1] == "-m" else argv[1]
        stand_in_for_fugashi(pytest.MonkeyPatch())
        if name == "scripts/word_vectors.py":
            stand_in_for_gensim(pytest.MonkeyPatch())
        argv = [*argv, *SMALL_ARGUMENTS.get(name, "").split()]
        if name.startswith("speed"):
            Corpus.__init__.__defaults__ = (500, 0)  # words, of 50,000
            torch.set_num_threads = lambda n: None  # Two only wait on a busy machine.
        if name == "speed" and "--only" not in argv:
            argv += ["--only", "^random batches$"]
    elif program == "allennlp":
        command = argv[1]
        if command == "train":
            spawn = functools.partial(torch.multiprocessing.start_processes, start_method="fork")
            train_command.mp = types.SimpleNamespace(spawn=spawn)  # type: ignore[attr-defined]
            given = [i for i, each in enumerate(argv) if each in ("-o", "--overrides")]
            overrides = argv.pop(given[0] + 1) if given else "{}"
            changes = small_sizes(Params.from_file(argv[2], overrides).as_dict(quiet=True))
            merged = json.dumps({**json.loads(overrides), **changes})
            argv[len(argv) : len(argv)] = ["-o", merged] if not given else []
            if given:
                argv.insert(given[0] + 1, merged)
        elif command == "elmo-benchmark":
            argv = [*argv, "--seeds", "1", "-o", '{"trainer.num_epochs": 1}']
        elif "--cuda-device" in argv and not torch.cuda.is_available():
            argv = [*argv, "--cuda-device", "-1"]
    elif program == "pip":
        check_installable(argv[1:])
        argv = ["python", "-c", ""]
    elif program == "tensorboard":
        assert list(Path(argv[argv.index("--logdir") + 1]).rglob("events.*"))
        argv = [*argv, "--inspect"]  # prints what there is instead of showing it
    return argv


def check_installable(arguments: List[str]) -> None:
    """Nothing is installed; what is named must be in this environment, or have a stand-in."""
    assert arguments[0] == "install"
    for requirement in arguments[1:]:
        match = re.fullmatch(r"([\w-]+)(?:\[(\w+)\])?", requirement)
        assert match, requirement
        name, extra = match.groups()
        if name == "allennlp_elmo_plugin":
            setup = (REPOSITORY_ROOT / "setup.py").read_text(encoding="utf-8")
            assert re.search(rf'extras_require=.*"{extra}":', setup), extra
        elif name not in ("fugashi", "unidic-lite"):
            importlib.metadata.distribution(name)


def small_sizes(config: Dict[str, Any]) -> Dict[str, Any]:
    """Return overrides for a config."""
    changes: Dict[str, Any] = {"trainer.num_epochs": 1}
    model = config["model"]
    if model["type"] == "bidirectional_lm":
        for reader in ("dataset_reader", "validation_dataset_reader"):
            changes.update({f"{reader}.batch_size": 2, f"{reader}.num_steps": 5})
            changes[f"{reader}.max_instances"] = 40
    if "lstm" in model.get("options", {}):
        options = "model.options"
        changes.update({f"{options}.lstm.dim": 16, f"{options}.lstm.projection_dim": 8})
        changes[f"{options}.char_cnn.filters"] = [[1, 4], [2, 4]]
    if isinstance(model.get("num_samples"), int):
        changes["model.num_samples"] = min(model["num_samples"], 10)
    if "hidden_size" in model.get("encoder", {}):
        changes.update({"model.encoder.hidden_size": 8, "model.encoder.num_layers": 2})
    if max(config.get("distributed", {}).get("cuda_devices", [-1])) >= torch.cuda.device_count():
        changes["distributed.cuda_devices"] = [-1, -1]
    return changes


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, str]:
    folder = tmp_path_factory.mktemp("home")
    tasks = {
        f"{task}_{split}_DATA_PATH": str(FIXTURES / name)
        for task, name in TASKS.items()
        for split in ("TRAIN", "VALIDATION")
    }
    names = ("LANG", "LC_ALL", "TMPDIR")
    return {
        **{name: os.environ[name] for name in names if name in os.environ},
        "HOME": str(folder),
        "PYTHONPATH": str(REPOSITORY_ROOT),
        "OMP_NUM_THREADS": "1",
        "MPLCONFIGDIR": matplotlib.get_cachedir(),
        "GLOO_SOCKET_IFNAME": "lo",
        "ELMO": "tiny",
        **tasks,
    }


@pytest.fixture(scope="module")
def folders(
    environment: Dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Dict[str, Path]:
    """A folder as readers have it, and one with what a page may presuppose, made by commands."""
    import_plugins_once()  # Forks don't have to.
    files, given = (tmp_path_factory.mktemp(name) for name in ("files", "given"))
    write_readers_files(files)
    shutil.copytree(files, given, symlinks=True, dirs_exist_ok=True)
    with Shell(given, environment, with_small_sizes) as shell:
        shell.run(MAKE_MODELS)
    shutil.copytree(given / ".venv", files / ".venv")
    return {"files": files, "given": given}


@pytest.mark.parametrize("page", PAGES)
def test_page(
    page: str, folders: Dict[str, Path], environment: Dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "page"
    shutil.copytree(folders["files"], folder, symlinks=True)
    failures = []
    outcome = Outcome("", False)
    with Shell(folder, environment, with_small_sizes) as shell:
        for block in read_blocks((REPOSITORY_ROOT / page).read_text(encoding="utf-8")):
            try:
                for name in filter(None, block.notes.get("given", "").split(", ")):
                    source, target = folders["given"] / name, folder / Path(name).name
                    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
                if "not run" in block.notes:
                    check_reason(block.notes["not run"])
                else:
                    outcome = run_block(block, shell, folder, outcome)
            except Exception as error:
                failures.append(f"{page}, line {block.line}: {type(error).__name__}: {error}")
    assert not failures, "\n\n".join(failures)


def check_reason(reason: str) -> None:
    assert len(reason.split()) > 1, "`not run` has no reason"
    for name in re.findall(r"[\w./-]+/[\w./-]+\w", reason):
        assert (REPOSITORY_ROOT / name).exists(), f"{name} doesn't exist"


class Outcome(NamedTuple):
    """
    Of a block.

    # Parameters

    printed : `str`
    is_exact : `bool`
        Whether the same is printed each time.
    """

    printed: str
    is_exact: bool


def run_block(block: Block, shell: Shell, folder: Path, before: Outcome) -> Outcome:
    """Run a block, or compare it with what the block before has printed."""
    if "file" in block.notes and block.language not in ("json", "jsonnet"):
        (folder / block.notes["file"]).write_text(block.code, encoding="utf-8")
        return before
    if block.language == "bash":
        return Outcome(shell.run(block.code), False)
    if block.language == "python":
        (folder / "block.py").write_text(block.code, encoding="utf-8")
        return Outcome(shell.run("python block.py"), True)
    if block.language in ("json", "jsonnet"):
        name = block.notes.get("file", "block.jsonnet")
        (folder / name).write_text(whole_config(block.code), encoding="utf-8")
        if "file" not in block.notes:
            call = f"check_config({name!r}, {block.notes.get('part of')!r})"
            shell.run(f'python -c "from tests.docs.commands_test import *; {call}"')
        return Outcome("", False)
    assert not block.language, "must be run, or marked as not run"
    if not block.code.startswith("$ "):
        assert before.printed, (
            "must be the output of the block before, or marked: <!-- not run: ... -->"
        )
        check_output(block.code, before)
        return before
    for session in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        command, expected = session.split("\n", 1)
        printed = shell.run(f"{command} || true")
        check_output(expected, Outcome(printed, command.startswith("allennlp elmo-configs")))
    return before


def check_output(expected: str, outcome: Outcome) -> None:
    """Lines of a page must be printed in this order; `...` is any text."""
    alike = str if outcome.is_exact else without_numbers
    lines = [alike(line) for line in outcome.printed.splitlines()]
    position = 0
    for line in expected.splitlines():
        wanted = ".*".join(re.escape(part) for part in alike(line).split("..."))
        found = [i for i in range(position, len(lines)) if re.search(wanted, lines[i])]
        assert found, f"{line!r} is not in what was printed:\n{outcome.printed}"
        position = found[0] + 1


def without_numbers(line: str) -> str:
    """Return a line without what differs from run to run: numbers, paths and names of files."""
    line = re.sub(r"\x1b\[\d+m", "", line)  # colours
    return " ".join(re.sub(r"\S*[\d/]\S*|\w+\.\w+", "*", word) for word in line.split())


def whole_config(code: str) -> str:
    """Return a part of a config as a whole that can be evaluated; `...` is what is left out."""
    code = re.sub(r",?\s*\.\.\.", ",", code.strip())
    if "local elmo =" not in code and "elmo." in code:
        code = f"local elmo = import 'elmo.libsonnet';\n{code}"
    if code.endswith(";"):
        return code + re.findall(r"local (\w+)", code)[-1]
    return f"{{ {code} }}" if re.match(r'"?\w+"?\+?:', code) else code


def check_config(name: str, part_of: Optional[str]) -> None:
    """Evaluate a config, and use it as far as it is one."""
    config = Params.from_file(name).as_dict(quiet=True)
    for key, kind in (("token_indexers", TokenIndexer), ("token_embedders", TokenEmbedder)):
        for section in config.get(key, {}).values():
            kind.from_params(Params(section))  # type: ignore[attr-defined]
    if config.get("type") == "elmo_token_embedder":
        TokenEmbedder.from_params(Params(config))
    if part_of is not None:
        assert_part(config, Params.from_file(part_of).as_dict(quiet=True))
    elif "trainer" in config:
        train_model(Params.from_file(name, json.dumps(small_sizes(config))), "trained")


def assert_part(part: Any, whole: Any) -> None:
    if isinstance(part, dict):
        for key, value in part.items():
            assert_part(value, whole[key])
    else:
        assert part == whole
