"""What `import allennlp_elmo_plugin` gives, and what AllenNLP makes of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Dict

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

print(json.dumps([log.getvalue(), sorted(imported), Subcommand.list_available()]))
"""


def test_allennlp_loads_the_plugin(
    repository_root: Path, subprocess_environment: Dict[str, str]
) -> None:
    process = subprocess.run(
        [sys.executable, "-c", LOAD_PLUGINS],
        cwd=repository_root,
        env=subprocess_environment,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    log, imported, commands = json.loads(process.stdout.splitlines()[-1])
    # AllenNLP only logs when a plugin, or a module of one, can't be imported.
    assert "Plugin allennlp_models available" in log
    assert "Plugin allennlp_elmo_plugin available" in log and "could not be loaded" not in log
    # Starting AllenNLP is slow as it is: h5py, matplotlib and the like are imported when used.
    assert set(imported) - sys.stdlib_module_names == {"allennlp_elmo_plugin"}
    assert {"train", "elmo", "elmo-vocab", "elmo-export"} <= set(commands)
    lines = (repository_root / ".allennlp_plugins").read_text(encoding="utf-8").split()
    assert lines == ["allennlp_elmo_plugin"]


def test_public_api() -> None:
    """Others rely on these names."""
    names = ["BiLm", "BiLmOptions", "Elmo", "ElmoEmbedder", "batch_to_ids"]
    assert allennlp_elmo_plugin.__all__ == names
    for name in names:
        assert getattr(allennlp_elmo_plugin, name).__module__.startswith("allennlp_elmo_plugin.")
