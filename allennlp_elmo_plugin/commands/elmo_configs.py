"""The subcommand `elmo-configs` copies the configs of this package, to be used and changed."""

import argparse
from pathlib import Path

from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.files.atomic import atomic_file

_PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = _PACKAGE / "training_config"
# In a clone of the repository, the configs are beside the package, not in it.
CONFIGS = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / _INSTALLED.name


class ElmoConfigs(Command):
    """
    Copy the configs of this package to a folder.

    DIR/pretrain       trainings of language models
    DIR/TASK           the tasks of the paper and more, each with and without ELMo
    DIR/elmo.libsonnet adds ELMo to any config
    DIR/benchmark      the smaller task models of `allennlp elmo-benchmark`
    """

    name = "elmo-configs"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, metavar="DIR", help="new files are added to it")

    def run(self, args: argparse.Namespace) -> None:
        n_copied = 0
        for path in [*CONFIGS.rglob("*.*sonnet"), *CONFIGS.rglob("*.json")]:
            copy = args.folder.expanduser() / path.relative_to(CONFIGS)
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                with atomic_file(copy) as staged:
                    Path(staged).write_bytes(path.read_bytes())
                n_copied += 1
        print(f"{n_copied} files copied to {args.folder}; what was there before is unchanged")
