"""
The program `allennlp-elmo-plugin`, also `python -m allennlp_elmo_plugin`. Without a command it says
which ELMo the program `allennlp` uses in this folder. It runs our commands, which need no AllenNLP,
and all others through AllenNLP's program, with this plugin.
"""

import argparse
import importlib.metadata
import os
import platform
import shutil
import signal
import sys
from pathlib import Path

from allennlp_elmo_plugin import __version__, exits

PLUGIN = "allennlp_elmo_plugin"
LOCAL_FILE = Path(".allennlp_plugins")
"""The file in which AllenNLP looks for the names of plugins in this folder."""
ALLENNLP_VERSION = "2.10.1"
# Without --no-deps, pip looks for versions that don't exist for Python 3.11 and later.
INSTALL_ALLENNLP = (
    "in a clone of this package, pip install '.[allennlp]' && pip install --no-deps "
    f"allennlp=={ALLENNLP_VERSION} allennlp-models=={ALLENNLP_VERSION}"
)


def main(arguments: list[str] | None = None) -> int:
    """Run the program. Return its exit status, unless a command ends it."""
    exits.escape_output()
    arguments = sys.argv[1:] if arguments is None else arguments
    program = Path(sys.argv[0]).name
    if program == "__main__.py":
        n_processes = os.environ.get("LOCAL_WORLD_SIZE")
        runner = f"torchrun --nproc-per-node {n_processes}" if n_processes else "python"
        program = f"{runner} -m {PLUGIN}"
    if not arguments or arguments[0].startswith("-"):
        return _activate(program, arguments)
    try:
        return _run(program, arguments)
    except KeyboardInterrupt:  # Importing torch and AllenNLP takes seconds.
        exits.end_with("interrupted", number=signal.SIGINT)


def _run(program: str, arguments: list[str]) -> int:
    from allennlp_elmo_plugin.commands import COMMANDS
    from allennlp_elmo_plugin.commands.command import Parser

    names = [command.name for command in COMMANDS]
    if arguments[0] in names:
        parser = Parser(prog=program)
        commands = parser.add_subparsers()
        for command in COMMANDS:
            command.add_subparser(commands)
        args = parser.parse_args(arguments)
        args.func(args)
    elif installed_version("allennlp") is None:
        exits.end_with(
            f"error: {arguments[0]} is none of {', '.join(names)}; for AllenNLP's commands, "
            f"install it: {INSTALL_ALLENNLP}",
            status=2,
        )
    else:
        from allennlp_elmo_plugin.plugin.subcommands import run_allennlp

        run_allennlp(program, arguments)
    return 0


def _activate(program: str, arguments: list[str]) -> int:
    """Activate the plugin if asked to. Return 0 if our ELMo is used here, and 1 if not."""
    files = {"--activate-here": LOCAL_FILE, "--activate": global_file()}
    parser = argparse.ArgumentParser(
        prog=program,
        usage="%(prog)s [-h] [--version] [--activate-here | --activate] [COMMAND ...]",
        description="Say which ELMo the program `allennlp` uses in this folder: that of "
        f"{PLUGIN}, or AllenNLP's own. The exit status is 1 if it is not that of {PLUGIN}.",
        epilog="Or run a command: elmo, elmo-train, elmo-perplexity, elmo-vocab, elmo-export, "
        "elmo-import, elmo-nearest, elmo-plot, elmo-probe and elmo-configs need no AllenNLP; all "
        "others are those of AllenNLP, such as train, evaluate and elmo-benchmark. COMMAND --help "
        "describes one.",
    )
    of_allennlp = installed_version("allennlp")
    version = f"%(prog)s {__version__}" + (f" (AllenNLP {of_allennlp})" if of_allennlp else "")
    parser.add_argument("--version", action="version", version=version)
    where = parser.add_mutually_exclusive_group()
    for option, file in files.items():
        help = f"add {PLUGIN} to the plugins in {file}"
        where.add_argument(option, dest="file", action="store_const", const=file, help=help)
    try:
        file = parser.parse_args(arguments).file
        if file is not None and PLUGIN not in (plugins := _plugins_in(file)):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join([*plugins, PLUGIN, ""]), "utf-8")
        return _report({file: _plugins_in(file) for file in files.values()})
    except OSError as error:
        exits.end_with(f"error: {exits.describe(error)}", 2)


def global_file() -> Path:
    """Return the file that names plugins for all folders."""
    return Path.home() / ".allennlp" / "plugins"


def _plugins_in(file: Path) -> list[str]:
    """Return the plugins that a file names, if it exists, as AllenNLP reads it."""
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    return [line.strip() for line in lines if line.strip()]


def _report(plugins: dict[Path, list[str]]) -> int:
    """Print which ELMo is active, the files that name plugins, versions and the device."""
    import torch

    advice, rows = "", {}
    if installed_version("allennlp") is None:
        elmo, advice = "none, because AllenNLP is not installed", INSTALL_ALLENNLP
    elif any(name.split(".")[0] == PLUGIN for names in plugins.values() for name in names):
        elmo = f"{PLUGIN} {__version__}"
    else:
        elmo = f"AllenNLP's own, because {PLUGIN} isn't activated"
        advice = "allennlp-elmo-plugin --activate (or --activate-here, for this folder only)"
    rows["active ELMo"] = elmo
    if advice:
        rows["to change that"] = advice
    for (file, names), where in zip(plugins.items(), ("plugins here", "everywhere")):
        rows[where] = f"{' '.join(names) or 'none'} (in {file})"
    rows["program"] = shutil.which("allennlp") or "`allennlp` is not in the PATH"
    rows["Python"] = f"{platform.python_version()} ({sys.executable})"
    for name in ("allennlp", "allennlp-models", "torch", "torchvision"):
        rows[name] = version = installed_version(name) or "not installed"
        if name.startswith("allennlp") and version != ALLENNLP_VERSION:
            rows[name] += f" (needed: {ALLENNLP_VERSION})"
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = ", ".join(map(torch.cuda.get_device_name, range(n_gpus)))
    rows["device"] = gpus or f"CPU with {os.cpu_count()} cores; torch finds no GPU"
    print("\n".join(f"{name:<16}{value}" for name, value in rows.items()))
    return 1 if advice else 0


def installed_version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
