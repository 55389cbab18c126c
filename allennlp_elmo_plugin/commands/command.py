"""
What the `elmo*` commands share. A user's mistake prints one line and ends with exit status 2;
Ctrl-C and SIGTERM print one line and end the program by the signal. `--debug` shows everything.
"""

import argparse
import functools
import importlib
import inspect
import itertools
import pkgutil
import sys
import tarfile
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from logging import CRITICAL, ERROR, WARNING, getLogger
from pathlib import Path
from typing import Any, NoReturn

import torch

from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.exits import describe, end_with, joined, printable, run_or_end
from allennlp_elmo_plugin.pretrained.find_model import SHORT_NAMES
from allennlp_elmo_plugin.progress import progress_bar, progress_of_command
from allennlp_elmo_plugin.text.checks import check_text
from allennlp_elmo_plugin.text.corpus import find_files, name_of, read_text
from allennlp_elmo_plugin.text.lines import SentenceLine, open_lines

MODEL_HELP = "folder with options.json and weights.hdf5, or an archive (.zip, model.tar.gz)"
ELMO_HELP = f"{MODEL_HELP}, or the short name of a model ({', '.join(SHORT_NAMES)})"
TEXT_HELP = "tokenised text, one sentence a line, plain or gzip: files, folders or globs"

_MODEL = "--model"

# Libraries raise these for bad files, and torch raises AssertionError for a missing GPU.
_OF_LIBRARIES = (KeyError, AssertionError, RuntimeError, tarfile.TarError, zlib.error)

# cached_path logs an error before it raises one.
_LEVELS = {"": ERROR, "allennlp_elmo_plugin": WARNING, "cached_path": CRITICAL}


class Command:
    """Base class of our commands. The docstring of a subclass describes the command."""

    name: str
    mistakes: tuple[type, ...] = (OSError, ValueError, EOFError, MemoryError, ImportError)
    """Errors that end the command with one line."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments that other commands don't have."""

    def run(self, args: argparse.Namespace) -> None:
        """Do the work of the command."""

    def resume(self, args: argparse.Namespace) -> list[str] | None:
        """Return the options that continue the work after Ctrl-C, or `None` if none can."""

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        """Add this command to those of a program."""
        subparser = self.add_parser(parser)
        self.add_arguments(subparser)
        add = subparser.add_argument
        package_help = "additional package to include; may be given several times"
        add("--include-package", dest="packages", action="append", default=[], help=package_help)
        add("-q", "--quiet", action="store_true", help="show only results, warnings and errors")
        add("--debug", action="store_true", help="show tracebacks, and what other packages log")
        subparser.set_defaults(func=functools.partial(self._run, subparser.prog))
        return subparser

    def add_parser(self, parsers: argparse._SubParsersAction) -> argparse.ArgumentParser:
        """Add a parser that has the description of this command, and no arguments."""
        description = inspect.getdoc(self) or ""
        help = description.split("\n")[0]
        return parsers.add_parser(self.name, description=description, help=help)

    def _run(self, prog: str, args: argparse.Namespace) -> None:
        def work() -> None:
            gpu = getattr(args, "cuda_device", None)
            if gpu not in (None, -1) and gpu >= (n_gpus := torch.cuda.device_count()):
                raise ValueError(f"--cuda-device {gpu}: torch finds {n_gpus} GPUs; -1 is the CPU")
            for package in args.packages:
                sys.path.append("")  # the folder where the command runs
                module = importlib.import_module(package)
                for submodule in pkgutil.walk_packages(
                    getattr(module, "__path__", []), f"{package}."
                ):
                    importlib.import_module(submodule.name)
            with progress_of_command(args.quiet, getattr(args, "file_friendly_logging", False)):
                self.run(args)

        def how_to_continue() -> str:
            options = self.resume(args)
            arguments = printable(joined([*(options or []), *sys.argv[2:]]))
            return "" if options is None else f"; continue with: {prog} {arguments}"

        if args.debug:
            work()
        else:
            run_or_end(_only_our_messages()(work), self._mistake, how_to_continue, 2)

    def _mistake(self, error: Exception) -> str | None:
        if isinstance(error, self.mistakes):
            return describe(error)
        if isinstance(error, _OF_LIBRARIES):
            return f"{type(error).__name__}: {describe(error)} (--debug shows where)"
        return None


class _Help(argparse.RawDescriptionHelpFormatter):
    """Descriptions as they are written, and the defaults of options, as AllenNLP shows them."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        has_default = action.default not in (None, False, [], argparse.SUPPRESS)
        return f"{action.help} (default = %(default)s)" if has_default else action.help


class Parser(argparse.ArgumentParser):
    """A parser that reports wrong arguments, unknown ones too, in one line."""

    has_positional_model = False

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, formatter_class=_Help)

    def parse_known_args(self, args: Any = None, *others: Any, **options: Any) -> Any:
        if self.has_positional_model:
            split = (arg.split("=", 1) if arg.startswith(f"{_MODEL}=") else [arg] for arg in args)
            args = list(itertools.chain(*split))
            if _MODEL in args[:-1]:
                at = args.index(_MODEL)
                args = [args[at + 1], *args[:at], *args[at + 2 :]]
        parsed, unknown = super().parse_known_args(args, *others, **options)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if not arg_string:
            raise argparse.ArgumentError(action, "is empty; is a variable of the shell unset?")
        return super()._get_value(action, arg_string)

    def error(self, message: str) -> NoReturn:
        end_with(f"error: {describe(ValueError(message))}; see `{self.prog} --help`", 2)


@contextmanager
def _only_our_messages() -> Iterator[None]:
    """Hide warnings, and messages below errors that other packages log."""
    before = {name: getLogger(name).level for name in _LEVELS}
    try:
        for name, level in _LEVELS.items():
            getLogger(name).setLevel(level)
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        for name, level in before.items():
            getLogger(name).setLevel(level)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--model`, `--weight-file` and `--cuda-device`."""
    add = parser.add_argument
    model_help = f"the language model: {ELMO_HELP}; or the path or address of its options (JSON)"
    names: dict[str, Any] = {"dest": "options_file", "metavar": "NAME"}
    add(_MODEL, "--options-file", **names, help=f"{model_help}; default: tiny")
    add("--weight-file", metavar="FILE", help="its weights, if they are not beside the options")
    add_cuda_device(parser)


def add_positional_model(parser: Any, help: str) -> None:
    """Add MODEL as the first argument, which may also be given as `--model NAME`."""
    parser.add_argument("model", metavar="MODEL", help=help)
    option: dict[str, Any] = {"dest": "model", "default": argparse.SUPPRESS, "metavar": "NAME"}
    parser.add_argument(_MODEL, **option, help="MODEL, at any place")
    parser.has_positional_model = True


def add_cuda_device(parser: argparse.ArgumentParser) -> None:
    """Add `--cuda-device`, which is at least -1; see `device_of`."""
    help = "number of the GPU, -1 for the CPU; default: a GPU, if any"
    parser.add_argument("--cuda-device", type=gpu_number, metavar="N", help=help)


def device_of(args: argparse.Namespace) -> str:
    """Return the device of `--cuda-device`."""
    number = args.cuda_device
    if number is None and torch.cuda.is_available():
        number = 0
    return "cpu" if number in (None, -1) else f"cuda:{number}"


def add_word_arguments(parser: argparse.ArgumentParser, max_occurrences: int) -> None:
    """Add a word, a text, `--max-occurrences` and a model."""
    add = parser.add_argument
    add("word", metavar="WORD", help="a word as it is written in the text")
    add("files", nargs="+", metavar="FILES", help=TEXT_HELP)
    help = "how many occurrences to use, drawn at random if there are more"
    add("--max-occurrences", type=positive, default=max_occurrences, metavar="N", help=help)
    add_model_arguments(parser)


def positive(text: str) -> int:
    """Return a whole number that is at least 1."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def gpu_number(text: str) -> int:
    """Return the number of a GPU, or -1 for the CPU."""
    if int(text) < -1:
        raise argparse.ArgumentTypeError(f"{text} is no GPU: give 0, 1, ..., or -1 for the CPU")
    return int(text)


def check_installed(*packages: str) -> None:
    """Raise a `ValueError` that says how to install those packages that are missing."""
    missing = " ".join(p for p in packages if not find_spec(p.replace("scikit-", "sk")))
    if missing:
        raise ValueError(f"this command needs {missing}: pip install {missing}")


def embedder(args: argparse.Namespace) -> ElmoEmbedder:
    """Load the model that was named or, without a warning, `tiny`."""
    options_file = args.options_file or (None if args.weight_file else "tiny")
    return ElmoEmbedder(options_file, args.weight_file, device=device_of(args))


def read_lines(paths: list[str]) -> Iterator[tuple[Path, SentenceLine]]:
    """Yield the lines of all files, each with its file, and show a progress bar."""
    files = find_files(paths)
    check_text(name_of(files), read_text(files, "replace"), None)
    total = sum(file.stat().st_size for file in files)
    with progress_bar(total=total, unit="B", unit_scale=True, desc="reading") as bar:
        for file in files:
            before = bar.n
            with open_lines(file) as lines:
                for line in lines:
                    yield file, line
                    bar.update(before + lines.position - bar.n)
