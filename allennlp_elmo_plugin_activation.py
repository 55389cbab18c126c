"""
The program `allennlp-elmo-plugin` says whether the program `allennlp` uses our ELMo in this folder,
and names the plugin in a file where AllenNLP looks for plugins. This module lies beside the package
because importing the package imports AllenNLP, which takes seconds and fails where it is missing.
"""

import argparse
import importlib.metadata
import os
import platform
import runpy
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Dict, List, Optional

PLUGIN = "allennlp_elmo_plugin"
LOCAL_FILE = Path(".allennlp_plugins")

_ACTIVE, _NOT_ACTIVE, _ERROR = 0, 1, 2
"""Exit statuses."""

_DISTRIBUTIONS = ("allennlp", "allennlp-models", "torch", "torchvision")


def main(arguments: Optional[List[str]] = None) -> int:
    """
    Run the program.

    # Parameters

    arguments : `List[str]`, optional (default = `sys.argv[1:]`)
        The command line.

    # Returns

    `int`
        The exit status: 0 if `allennlp` uses our ELMo in this folder, 1 if it doesn't, 2 if the
        file could not be read or written.
    """
    constants = _constants()
    parser = argparse.ArgumentParser(
        prog="allennlp-elmo-plugin",
        description="Say which ELMo the program `allennlp` uses in this folder: that of "
        f"{PLUGIN}, or AllenNLP's own. The exit status is 1 if it is not that of {PLUGIN}.",
    )
    parser.add_argument("--version", action="version", version=constants["__version__"])
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--activate",
        dest="file",
        action="store_const",
        const=global_file(),
        help=f"add {PLUGIN} to the plugins of all folders, in {global_file()}",
    )
    where.add_argument(
        "--activate-here",
        dest="file",
        action="store_const",
        const=LOCAL_FILE,
        help=f"add {PLUGIN} to the plugins of this folder, in {LOCAL_FILE}",
    )
    file = parser.parse_args(arguments).file
    try:
        if file is not None:
            activate(file)
        return report(constants)
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
    return _ERROR


def global_file() -> Path:
    """Return the file that names plugins for all folders."""
    return Path.home() / ".allennlp" / "plugins"


def activate(file: Path) -> None:
    """Add our plugin to a file of plugins, unless it names it. What the file contains stays."""
    if PLUGIN in plugins_in(file):
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    text = file.read_bytes() if file.exists() else b""
    newline = b"" if not text or text.endswith(b"\n") else b"\n"
    with open(file, "ab") as output:
        output.write(newline + PLUGIN.encode() + b"\n")


def plugins_in(file: Path) -> List[str]:
    """Return the plugins that a file names, read as AllenNLP reads it. It need not exist."""
    lines = file.read_text().splitlines() if file.is_file() else []
    return [line.strip() for line in lines if line.strip()]


def report(constants: Dict[str, Any]) -> int:
    """Print which ELMo is active, the files that decide it, versions and device."""
    versions = {name: _installed_version(name) for name in _DISTRIBUTIONS}
    named = {file: plugins_in(file) for file in (LOCAL_FILE, global_file())}
    is_ours = versions["allennlp"] is not None and any(
        plugin.split(".")[0] == PLUGIN for plugins in named.values() for plugin in plugins
    )
    elmo = f"AllenNLP's own, because no file names {PLUGIN}"
    advice = "allennlp-elmo-plugin --activate         (or --activate-here, for this folder only)"
    if is_ours:
        elmo = f"{PLUGIN} {constants['__version__']}"
    elif versions["allennlp"] is None:
        elmo, advice = "none, because AllenNLP is not installed", constants["INSTALL_ALLENNLP"]
    _print_row("active ELMo", elmo)
    if not is_ours:
        _print_row("to change that", advice)
    for file, plugins in named.items():
        names = " ".join(plugins) if plugins else "names no plugin"
        _print_row("plugins here" if file == LOCAL_FILE else "everywhere", f"{file}: {names}")
    _print_row("program", shutil.which("allennlp") or "`allennlp` is not in the PATH")
    _print_row("Python", f"{platform.python_version()} ({sys.executable})")
    for name, version in versions.items():
        is_wrong = name.startswith("allennlp") and version != constants["ALLENNLP_VERSION"]
        needed = f" (needed: {constants['ALLENNLP_VERSION']})" if is_wrong else ""
        _print_row(name, (version or "not installed") + needed)
    if versions["torch"] is not None:
        _print_row("device", _device())
    return _ACTIVE if is_ours else _NOT_ACTIVE


def _print_row(name: str, value: str) -> None:
    print(f"{name:<16}{value}", flush=True)  # Importing torch takes seconds.


def _constants() -> Dict[str, Any]:
    spec = find_spec(PLUGIN)
    assert spec is not None and spec.origin is not None
    return runpy.run_path(str(Path(spec.origin).with_name("version.py")))


def _installed_version(distribution: str) -> Optional[str]:
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


if __name__ == "__main__":
    sys.exit(main())
