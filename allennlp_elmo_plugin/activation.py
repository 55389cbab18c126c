"""
Which ELMo the program `allennlp` uses in this folder, and the files in which AllenNLP looks for the
names of plugins. Nothing here imports AllenNLP, or torch before it is asked for the device.
"""

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys
from pathlib import Path

from allennlp_elmo_plugin.version import ALLENNLP_VERSION, INSTALL_ALLENNLP, __version__

PLUGIN = "allennlp_elmo_plugin"
LOCAL_FILE = Path(".allennlp_plugins")


def main(program: str, arguments: list[str]) -> int:
    """Activate the plugin if asked to. Return 0 if our ELMo is used here, 1 if not, 2 by error."""
    files = {"--activate-here": LOCAL_FILE, "--activate": global_file()}
    parser = argparse.ArgumentParser(
        prog=program,
        usage="%(prog)s [-h] [--version] [--activate-here | --activate] [COMMAND ...]",
        description="Say which ELMo the program `allennlp` uses in this folder: that of "
        f"{PLUGIN}, or AllenNLP's own. The exit status is 1 if it is not that of {PLUGIN}.",
        epilog="Or run a command: elmo, elmo-vocab, elmo-export, elmo-import, elmo-nearest, "
        "elmo-plot, elmo-probe and elmo-configs need no AllenNLP; all others are those of "
        "AllenNLP, such as train, evaluate and elmo-benchmark. COMMAND --help describes one.",
    )
    of_allennlp = _installed_version("allennlp")
    version = f"%(prog)s {__version__}" + (f" (AllenNLP {of_allennlp})" if of_allennlp else "")
    parser.add_argument("--version", action="version", version=version)
    where = parser.add_mutually_exclusive_group()
    for option, file in files.items():
        help = f"add {PLUGIN} to the plugins in {file}"
        where.add_argument(option, dest="file", action="store_const", const=file, help=help)
    try:
        file = parser.parse_args(arguments).file
        if file is not None and PLUGIN not in _plugins_in(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            with open(file, "ab+") as stored:
                stored.seek(0)
                newline = b"" if stored.read()[-1:] in (b"", b"\n") else b"\n"
                stored.write(newline + PLUGIN.encode() + b"\n")
        return _report({file: _plugins_in(file) for file in files.values()})
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
    return 2


def global_file() -> Path:
    """Return the file that names plugins for all folders."""
    return Path.home() / ".allennlp" / "plugins"


def _plugins_in(file: Path) -> list[str]:
    """Return the plugins that a file names, read as AllenNLP reads it. It need not exist."""
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    return [line.strip() for line in lines if line.strip()]


def _report(named: dict[Path, list[str]]) -> int:
    """Print which ELMo is active, the files that decide it, versions and device."""
    advice, rows = "", {}
    if _installed_version("allennlp") is None:
        elmo, advice = "none, because AllenNLP is not installed", INSTALL_ALLENNLP
    elif any(each.split(".")[0] == PLUGIN for plugins in named.values() for each in plugins):
        elmo = f"{PLUGIN} {__version__}"
    else:
        elmo = f"AllenNLP's own, because no file names {PLUGIN}"
        advice = (
            "allennlp-elmo-plugin --activate         (or --activate-here, for this folder only)"
        )
    rows["active ELMo"] = elmo
    if advice:
        rows["to change that"] = advice
    for (file, plugins), where in zip(named.items(), ("plugins here", "everywhere")):
        rows[where] = f"{file}: {' '.join(plugins) or 'names no plugin'}"
    rows["program"] = shutil.which("allennlp") or "`allennlp` is not in the PATH"
    rows["Python"] = f"{platform.python_version()} ({sys.executable})"
    for name in ("allennlp", "allennlp-models", "torch", "torchvision"):
        rows[name] = version = _installed_version(name) or "not installed"
        if name.startswith("allennlp") and version != ALLENNLP_VERSION:
            rows[name] += f" (needed: {ALLENNLP_VERSION})"
    rows["device"] = _device()
    print("\n".join(f"{name:<16}{value}" for name, value in rows.items()))
    return 1 if advice else 0


def _installed_version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device() -> str:
    try:
        import torch
    except Exception as error:  # ImportError, or OSError where a library is missing
        return f"unknown, because torch does not start: {error}"
    if torch.cuda.is_available():
        return ", ".join(map(torch.cuda.get_device_name, range(torch.cuda.device_count())))
    return f"CPU with {os.cpu_count()} cores; torch finds no GPU"
