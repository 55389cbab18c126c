"""
What the `elmo*` commands share. A user's mistake prints one line and ends with exit status 2;
Ctrl-C and SIGTERM print one line and end the program by the signal. `--debug` shows everything.
"""

import argparse
import functools
import inspect
import logging
import pickle
import shlex
import signal
import sys
import tarfile
import warnings
import zlib
from contextlib import contextmanager
from typing import Any, Iterator, List, NoReturn, Optional, Tuple
from unittest.mock import patch

from allennlp.commands import ArgumentParserWithDefaults
from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import import_module_and_submodules

from allennlp_elmo_plugin.errors import describe, end_with, printable, signal_of, terminable
from allennlp_elmo_plugin.progress import progress_of_command

register = Subcommand.register
_PACKAGE = __name__.split(".")[0]

_MISTAKES = (ConfigurationError, OSError, ValueError, EOFError, MemoryError, ImportError)
# Libraries raise these for bad files.
_OF_LIBRARIES = (KeyError, RuntimeError, tarfile.TarError, pickle.UnpicklingError, zlib.error)

# cached_path logs an error before it raises one.
_LEVELS = {"": logging.ERROR, _PACKAGE: logging.WARNING, "cached_path": logging.CRITICAL}


class Command(Subcommand):
    """Base class of our subcommands. The docstring of a subclass describes the command."""

    # `add_subparser` adds --include-package, so that a missing package is an error like others.
    requires_plugins = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments that other commands don't have."""

    def run(self, args: argparse.Namespace) -> None:
        """Do the work of the command."""

    def resume(self, args: argparse.Namespace) -> Optional[str]:
        """Return the option (`""` if none) that continues after Ctrl-C, `None` if nothing does."""

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
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
        with patch.object(parsers, "_parser_class", _Parser):
            return parsers.add_parser(
                self.name,
                description=description,
                help=description.split("\n")[0],
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )

    def _run(self, prog: str, args: argparse.Namespace) -> None:
        if args.debug:
            self._import_and_run(args)
            return
        number = 0
        try:
            with terminable(), _only_our_messages():
                self._import_and_run(args)
            return
        except BrokenPipeError:  # The reader of our output has closed it.
            number, message = signal.SIGPIPE, ""
        except KeyboardInterrupt as error:
            number, message = signal_of(error)
            option, given = self.resume(args), sys.argv[2:]
            if option and option not in given:
                given.insert(0, option)  # Nothing after `--` is an option.
            if option is not None:
                message += f"; continue with: {prog} {printable(shlex.join(given))}"
        except _MISTAKES as error:
            message = f"error: {describe(error)}"
        except _OF_LIBRARIES as error:
            message = f"error: {type(error).__name__}: {describe(error)} (--debug shows where)"
        # Here the error is gone, and with it the progress bars that it kept open.
        end_with(message, 2, number)

    def _import_and_run(self, args: argparse.Namespace) -> None:
        for package in args.packages:
            import_module_and_submodules(package)
        with progress_of_command(args.quiet):
            self.run(args)
        print(end="", flush=True)  # Here, a reader that has gone is no error.


class _Parser(ArgumentParserWithDefaults):
    """A parser that reports wrong arguments, unknown ones too, in one line."""

    def parse_known_args(  # type: ignore[override]
        self, args: Any = None, namespace: Any = None
    ) -> Tuple[argparse.Namespace, List[str]]:
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        end_with(f"error: {describe(ValueError(message))}; see `{self.prog} --help`", 2)


@contextmanager
def _only_our_messages() -> Iterator[None]:
    """Hide what others log below errors, and their warnings unless Python was told to warn."""
    before = {name: logging.getLogger(name).level for name in _LEVELS}
    try:
        for name, level in _LEVELS.items():
            logging.getLogger(name).setLevel(level)
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.filterwarnings("ignore", module=rf"(?!{_PACKAGE}\b)")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
