"""
What commands tell users to do works: the examples of the helps, the next step that is printed, and
the options that messages name.
"""

import argparse
import ast
import re
import shlex
import shutil
import sys

import pytest

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.__main__ import main as own_main
from allennlp_elmo_plugin.commands import COMMANDS
from allennlp_elmo_plugin.commands.command import Parser
from allennlp_elmo_plugin.commands.elmo_import import import_model
from tests.conftest import REPOSITORY_ROOT
from tests.support.bilm_tf import REFERENCE
from tests.support.testing import main

PACKAGE = REPOSITORY_ROOT / "allennlp_elmo_plugin"
PROGRAMS = {"allennlp-elmo-plugin": own_main, "allennlp": main}
OUTPUTS = {"elmo-train": "my_elmo", "elmo-export": "my_elmo", "elmo-import": "my_model"}
OWNERS = {
    "analysis/labelled_text.py": "elmo-probe",
    "analysis/probing.py": "elmo-probe",
    "analysis/word_map.py": "elmo-plot",
    "embedding/": "elmo",
    "plugin/benchmark/": "elmo-benchmark",
}
"""Whose messages are in modules outside of `commands/`."""


def parsers():
    """The parser of each command of this package, by name."""
    subparsers = Parser(prog="allennlp-elmo-plugin").add_subparsers()
    commands = [*COMMANDS]
    try:
        from allennlp_elmo_plugin.plugin.benchmark.command import ElmoBenchmark

        commands.append(ElmoBenchmark())
    except ModuleNotFoundError:
        pass
    return {command.name: command.add_subparser(subparsers) for command in commands}


def options(parser):
    """All options of a parser and its subparsers."""
    names = set()
    for action in parser._actions:
        names.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            names.update(*map(options, action.choices.values()))
    return names


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    lines = ["They play on the bank .", "A play of the bank .", "She rowed to the bank ."]
    for name in ("train.txt", "heldout.txt", "text.txt", "sentences.txt", "corpus/a.gz"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join(lines * 30), encoding="utf-8")
    shutil.copytree(REFERENCE / "checkpoint", folder / "checkpoint_folder")
    shutil.copy(REFERENCE / "data" / "vocab.txt", folder)
    import_model(folder / "checkpoint_folder", folder / "imported", folder / "vocab.txt")
    shutil.copy(folder / "imported" / "model.tar.gz", folder)
    own_main(["elmo", f"{folder}/text.txt", f"{folder}/layers.hdf5", "--all"])
    new = [f"{folder}/train.txt", f"--validation={folder}/heldout.txt", "--num-epochs=2", "-q"]
    for name in ("my_elmo", "my_model"):
        own_main(["elmo-train", *new, f"--output={folder}/{name}"])
    return folder


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_the_examples_of_a_help_run_as_they_stand(
    program, command, folder, tmp_path, monkeypatch, capsys
):
    def run(argv):
        monkeypatch.setattr(sys, "argv", [program, *argv])
        PROGRAMS[program](argv) if program == "allennlp-elmo-plugin" else main()

    with pytest.raises(SystemExit):
        run([command, "--help"])
    shown = capsys.readouterr().out
    assert "%(prog)" not in shown
    examples = re.findall(r"(?m)^ {2}(allennlp.*)", shown)
    shutil.copytree(folder, tmp_path / "folder")
    monkeypatch.chdir(tmp_path / "folder")
    for example in examples:
        first, *argv = shlex.split(example)
        assert (first, argv[0]) == (program, command)
        shutil.rmtree(OUTPUTS.get(command, ""), ignore_errors=True)
        run(argv)
    assert examples or command in ("elmo", "elmo-probe", "elmo-configs")


def test_the_next_step_runs_as_it_is_printed(folder, tmp_path, monkeypatch, capsys):
    shutil.copytree(folder, tmp_path / "folder")
    monkeypatch.chdir(tmp_path / "folder")
    own_main(shlex.split("elmo-train --resume --num-epochs 3 --output my_elmo"))
    last = capsys.readouterr().out.splitlines()[-1]
    line, code = re.search(r"Next: `(.*?)`, or (.*)$", last).groups()
    first, *argv = shlex.split(line.replace("TEXT", "text.txt"))
    assert first == "allennlp-elmo-plugin"
    own_main(argv)
    assert "predicted_words" in capsys.readouterr().out
    assert isinstance(eval(code), ElmoEmbedder)


def texts(path):
    """The strings of a module that users may read, those of an f-string as one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = [*ast.walk(tree)]
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    if "commands" not in path.parts:  # where docstrings are helps
        inner |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        if id(node) not in inner:
            values = (getattr(part, "value", None) for part in parts)
            yield "".join(value if isinstance(value, str) else "..." for value in values)


def test_commands_have_the_options_that_their_messages_name():
    of = {name: options(parser) for name, parser in parsers().items()}
    of_any = set().union(*of.values())
    n_seen = 0
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        owner = next((name for start, name in OWNERS.items() if module.startswith(start)), "")
        if module.startswith("commands/elmo"):
            owner = path.stem.replace("_", "-")
        is_other = module.startswith(("plugin/", "__main__", "pretrained/model_card"))
        if (is_other and not owner) or module == "analysis/surprise.py":
            continue  # AllenNLP's options, the program's own, the model card, and a style sheet
        for text in texts(path):
            for option in re.finditer(r"(?<![\w`-])--[a-z][a-z-]+|(?<=`)--[a-z][a-z-]+", text):
                named = re.findall(r"\b(elmo-[a-z]+|torchrun)\b|`(elmo)`", text[: option.start()])
                names = [owner, *map("".join, named[-1:])]
                if "torchrun" not in names and ("elmo-benchmark" in of or owner in ("", *of)):
                    shared = module in ("commands/command.py", "files/atomic.py")
                    known = of_any if shared else set().union(*(of.get(n, ()) for n in names))
                    assert option[0] in known, f"{module}: {option[0]} in {text!r}"
                    n_seen += 1
    assert n_seen > 100
