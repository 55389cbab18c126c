"""What `import allennlp_elmo_plugin` gives, and what AllenNLP makes of it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_allennlp_loads_the_plugin(repository_root: Path, subprocess_environment: Any) -> None:
    command = [sys.executable, "-c", LOAD_PLUGINS]
    subprocess.run(command, cwd=repository_root, env=subprocess_environment, check=True)
    lines = (repository_root / ".allennlp_plugins").read_text(encoding="utf-8").split()
    assert lines == ["allennlp_elmo_plugin"]


def test_public_api() -> None:
    """Others rely on these names."""
    names = ["BiLm", "BiLmOptions", "Elmo", "ElmoEmbedder", "batch_to_ids"]
    assert allennlp_elmo_plugin.__all__ == names
    for name in names:
        assert getattr(allennlp_elmo_plugin, name).__module__.startswith("allennlp_elmo_plugin.")
