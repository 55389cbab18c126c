"""What `import allennlp_elmo_plugin` gives, and what AllenNLP makes of it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import allennlp_elmo_plugin

# Starts AllenNLP as its command does.
LOAD_PLUGINS = """
import sys
from allennlp.common.util import import_module_and_submodules

import_module_and_submodules("allennlp", exclude={"allennlp.sanity_checks", "allennlp.tools"})
before = set(sys.modules)
import allennlp_elmo_plugin

# Starting AllenNLP is slow as it is: h5py, matplotlib and the like are imported when used.
imported = {name.split(".")[0] for name in set(sys.modules) - before}
assert imported - sys.stdlib_module_names == {"allennlp_elmo_plugin"}, imported

from allennlp.commands.subcommand import Subcommand
from allennlp.common.plugins import import_plugins

import_plugins()
assert "allennlp_models" in sys.modules
assert {"train", "elmo", "elmo-vocab", "elmo-export"} <= set(Subcommand.list_available())
"""


def test_allennlp_loads_the_plugin(repository_root, subprocess_environment):
    command = [sys.executable, "-c", LOAD_PLUGINS]
    subprocess.run(command, cwd=repository_root, env=subprocess_environment, check=True)
    lines = (repository_root / ".allennlp_plugins").read_text(encoding="utf-8").split()
    assert lines == ["allennlp_elmo_plugin"]


def test_public_api():
    """Others rely on these names."""
    names = ["BiLm", "BiLmOptions", "Elmo", "ElmoEmbedder", "batch_to_ids"]
    assert allennlp_elmo_plugin.__all__ == names
    assert dir(allennlp_elmo_plugin) == sorted(["__version__", *names])  # what completion shows
    # And after `import`, where it reads the source
    assert vars(allennlp_elmo_plugin).keys().isdisjoint({"Any", "importlib", "sys", "typing"})
    for name in names:
        assert getattr(allennlp_elmo_plugin, name).__module__.startswith("allennlp_elmo_plugin.")


def test_only_the_plugin_imports_allennlp(repository_root):
    importing = set()
    for path in (repository_root / "allennlp_elmo_plugin").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: a relative import"
                names = [str(node.module)]
            if any(name.split(".")[0] in ("allennlp", "allennlp_models") for name in names):
                importing.add(path.relative_to(repository_root).parts[1])
    assert importing == {"plugin"}


def test_each_module_or_one_that_imports_it_has_a_file_of_tests(repository_root):
    imports, untested = {}, set()
    for path in (repository_root / "allennlp_elmo_plugin").rglob("*.py"):
        module = path.relative_to(repository_root).with_suffix("")
        folder = module.parent if module.name == "__init__" else module
        tests = Path("tests", *folder.parts[1:]).with_name(f"{folder.name.strip('_')}_test.py")
        if not (repository_root / tests).exists():
            if folder != module:
                continue
            untested.add(module)
        imports[module] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                start = str(node.module).replace(".", "/")
                imports[module] |= {Path(start), *(Path(start, one.name) for one in node.names)}
    while tested := untested & set().union(*map(imports.get, imports.keys() - untested)):
        untested -= tested
    # AllenNLP 0.9's module, which only the user imports
    assert list(map(str, untested)) == [
        "allennlp_elmo_plugin/plugin/patches/allennlp_commands/elmo"
    ]


BY_NAME = re.compile(r"pip install [^\n`]*(?<!/)\ballennlp_elmo_plugin\b(?!-)")


def test_nothing_says_to_install_this_package_by_its_name(repository_root):
    """It isn't published, so anybody could publish another one under this name."""
    listing = ["git", "-C", repository_root, "ls-files"]
    for name in subprocess.check_output(listing, encoding="utf-8").splitlines():
        if name.endswith((".py", ".md", ".yml", ".sh", ".ipynb")):
            text = (repository_root / name).read_text(encoding="utf-8")
            assert not BY_NAME.search(text), name


# What the programs of the wheel alone don't have, or takes seconds to import.
ABSENT = "allennlp triton transformers spacy sklearn matplotlib torch._dynamo"
REPORT = f"import sys; assert not {set(ABSENT.split())!r} & set(sys.modules)"
VECTORS = """
from allennlp_elmo_plugin import Elmo, ElmoEmbedder, batch_to_ids

assert ElmoEmbedder("tiny").embed_sentence(["A", "sentence"]).shape[1] == 2
elmo = Elmo("tiny", None, 1)
elmo(batch_to_ids([["A", "sentence"]]))
"""
PROGRAM = """
from allennlp_elmo_plugin.__main__ import main

main(["elmo-nearest", "bank", "text", "--query", "The bank ."])
"""
# Other programs ask whether AllenNLP is there, and may keep the answer.
FIND = 'from importlib.util import find_spec\nspec = find_spec("allennlp")\n'
AFTER = """
import allennlp_elmo_plugin
from allennlp.modules.elmo import Elmo
from allennlp.commands.elmo import ElmoEmbedder
from allennlp.data import TokenIndexer

assert Elmo is allennlp_elmo_plugin.Elmo
assert TokenIndexer.by_name("elmo_characters").__module__.startswith("allennlp_elmo_plugin.")
assert issubclass(ElmoEmbedder, allennlp_elmo_plugin.ElmoEmbedder)
"""
SAME = "assert isinstance(elmo, Elmo)\n"
SCRIPTS = {"plugin first": f"{VECTORS}{PROGRAM}{REPORT}\n{FIND}{AFTER}{SAME}"}
SCRIPTS["plugin last"] = f"{FIND}import allennlp\n{AFTER}"


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("script", SCRIPTS)
def test_order_of_imports(script, tmp_path, subprocess_environment):
    (tmp_path / "text").write_text("The bank of the river .\nA bank .\n", encoding="utf-8")
    command = [sys.executable, "-c", SCRIPTS[script]]
    subprocess.run(command, cwd=tmp_path, env=subprocess_environment, check=True, timeout=300)
