"""
The subcommand `elmo-configs` copies the configs of this package, to be used and changed.

```
allennlp elmo-configs my_configs
```

writes

- `my_configs/pretrain`: trainings of language models
- `my_configs/TASK`: the tasks of the paper and more, each with and without ELMo
- `my_configs/elmo.libsonnet`, which adds ELMo to any config
- `my_configs/benchmark`: the smaller task models of `allennlp elmo-benchmark`
"""

import argparse
from pathlib import Path
from typing import List

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.files.whole import whole_file
from allennlp_elmo_plugin.modules.configs import CONFIGS


@Subcommand.register("elmo-configs")
class ElmoConfigs(Command):
    """`allennlp elmo-configs DIR`"""

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        description = "Copy the configs of this package to a folder."
        subparser = parser.add_parser(self.name, description=description, help=description)
        subparser.add_argument(
            "folder",
            metavar="DIR",
            help="folder for the copies; files in it that you have changed are never replaced",
        )
        return self.finish(subparser, copy_configs_from_args)


def copy_configs_from_args(args: argparse.Namespace) -> None:
    """Run `copy_configs` with the command's arguments."""
    copied = copy_configs(Path(args.folder))
    contents = ", ".join(sorted(path.name for path in CONFIGS.iterdir()))
    print(f"{len(copied)} files copied to {args.folder}, which now has {contents}")


def copy_configs(folder: Path) -> List[Path]:
    """
    Copy the configs of this package that a folder lacks. It is created if it is missing.

    # Returns

    `List[Path]`
        What was copied, relative to the folder.

    # Raises

    `ConfigurationError`
        The folder is a file, or a file in it has the name of a config and another content. Nothing
        was copied.
    """
    folder = folder.expanduser()
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise ConfigurationError(f"{path} is a file, not a folder; choose another folder")
    names = sorted(path.relative_to(CONFIGS) for path in CONFIGS.rglob("*.*sonnet"))
    missing = [name for name in names if not (folder / name).exists()]
    changed = [
        str(name)
        for name in names
        if name not in missing and (folder / name).read_bytes() != (CONFIGS / name).read_bytes()
    ]
    if changed:
        raise ConfigurationError(
            f"{folder} has other files of these names, and nothing was copied: "
            f"{', '.join(changed)}. Rename them, or choose another folder"
        )
    for name in missing:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / name) as staged:
            Path(staged).write_bytes((CONFIGS / name).read_bytes())
    return missing
