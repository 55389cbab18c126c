"""The subcommand `elmo-configs` copies the configs of this package, to be used and changed."""

import argparse
from pathlib import Path

from allennlp_elmo_plugin.commands.command import Command, register
from allennlp_elmo_plugin.files.whole import whole_file
from allennlp_elmo_plugin.modules.configs import CONFIGS


@register("elmo-configs")
class ElmoConfigs(Command):
    """
    Copy the configs of this package to a folder.

    DIR/pretrain       trainings of language models
    DIR/TASK           the tasks of the paper and more, each with and without ELMo
    DIR/elmo.libsonnet adds ELMo to any config
    DIR/benchmark      the smaller task models of `allennlp elmo-benchmark`
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, metavar="DIR", help="new files are added to it")

    def run(self, args: argparse.Namespace) -> None:
        folder = args.folder.expanduser()
        for path in (folder, *folder.parents):
            if path.exists() and not path.is_dir():
                raise ValueError(f"{path} is a file, not a folder; choose another folder")
        names = sorted(path.relative_to(CONFIGS) for path in CONFIGS.rglob("*.*sonnet"))
        new = {name: (CONFIGS / name).read_bytes() for name in names}
        there = {name: path.read_bytes() for name in names if (path := folder / name).exists()}
        changed = [str(name) for name, content in there.items() if content != new[name]]
        if changed:
            raise ValueError(
                f"{folder} has other files of these names, and nothing was copied: "
                f"{', '.join(changed)}. Rename them, or choose another folder"
            )
        for name in new.keys() - there.keys():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with whole_file(folder / name) as staged:
                Path(staged).write_bytes(new[name])
        contents = ", ".join(sorted(path.name for path in CONFIGS.iterdir()))
        n_copied = len(new) - len(there)
        print(f"{n_copied} files copied to {args.folder}, which now has {contents}")
