import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

import allennlp_elmo_plugin

# Starts AllenNLP as its command does, and tells what was logged and what our import brought in.
LOAD_PLUGINS = """
import io, json, logging, sys

log = io.StringIO()
logging.basicConfig(stream=log, level=logging.INFO)

from allennlp.common.plugins import import_plugins
from allennlp.common.util import import_module_and_submodules

import_module_and_submodules("allennlp", exclude={"allennlp.sanity_checks", "allennlp.tools"})
before = set(sys.modules)
import allennlp_elmo_plugin
imported = {name.split(".")[0] for name in set(sys.modules) - before}
import_plugins()
from allennlp.commands.subcommand import Subcommand

commands = Subcommand.list_available()
print(json.dumps({"log": log.getvalue(), "imported": sorted(imported), "commands": commands}))
"""


@pytest.fixture(scope="module")
def start(repository_root: Path, subprocess_environment: Dict[str, str]) -> Dict[str, Any]:
    process = subprocess.run(
        [sys.executable, "-c", LOAD_PLUGINS],
        cwd=repository_root,
        env=subprocess_environment,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.parametrize("plugin", ["allennlp_models", "allennlp_elmo_plugin"])
def test_plugin_loads(start: Dict[str, Any], plugin: str) -> None:
    """AllenNLP only logs when a plugin, or a module of one, can't be imported."""
    assert f"Plugin {plugin} available" in start["log"]


def test_nothing_could_not_be_loaded(start: Dict[str, Any]) -> None:
    assert "could not be loaded" not in start["log"]


def test_import_brings_in_no_other_package(start: Dict[str, Any]) -> None:
    """Starting AllenNLP is slow as it is: h5py, matplotlib and the like are imported when used."""
    third_party = set(start["imported"]) - sys.stdlib_module_names
    assert third_party == {"allennlp_elmo_plugin"}


def test_our_commands_are_allennlps(start: Dict[str, Any]) -> None:
    assert {"train", "elmo", "elmo-vocab", "elmo-export"} <= set(start["commands"])


def test_plugins_file_names_this_package(repository_root: Path) -> None:
    lines = (repository_root / ".allennlp_plugins").read_text(encoding="utf-8").split()
    assert lines == [allennlp_elmo_plugin.__name__]
