"""
What the `elmo*` commands share. A user's mistake prints one line on standard error and ends with
exit status 2; Ctrl-C and SIGTERM print one line and end the program. Messages and warnings of other
packages are hidden. `--debug` shows everything.
"""

import argparse
import functools
import logging
import os
import pickle
import shlex
import sys
import tarfile
import warnings
import zlib
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, NoReturn, Optional, Tuple

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import import_module_and_submodules

from allennlp_elmo_plugin.errors import describe, end_with, printable, signal_of, terminable
from allennlp_elmo_plugin.progress import progress_of_command

_PACKAGE = __name__.split(".")[0]

_MISTAKES = (ConfigurationError, OSError, ValueError, EOFError, MemoryError, ImportError)
# Libraries raise these for bad files, with messages that are useless without the type.
_OF_LIBRARIES = (KeyError, RuntimeError, tarfile.TarError, pickle.UnpicklingError, zlib.error)

_LOWEST_LEVELS = {
    _PACKAGE: logging.WARNING,
    "cached_path": logging.CRITICAL,  # It logs an error before it raises one.
}

_USAGE, _BROKEN_PIPE = 2, 141
"""Exit statuses; the last is the one that a shell reports after the signal."""

Resume = Callable[[argparse.Namespace], Optional[str]]


class Command(Subcommand):
    """
    Base class of our subcommands. `add_subparser` ends with `return self.finish(subparser, run)`.
    """

    # `finish` adds --include-package itself, so that a missing package is an error like others.
    requires_plugins = False

    def finish(
        self,
        subparser: argparse.ArgumentParser,
        function: Callable[[argparse.Namespace], None],
        resume: Optional[Resume] = None,
    ) -> argparse.ArgumentParser:
        """
        Add the common arguments to a parser and return it.

        # Parameters

        subparser : `argparse.ArgumentParser`
            The parser, with the command's arguments.
        function : `Callable[[argparse.Namespace], None]`
            What the command does.
        resume : `Callable[[argparse.Namespace], Optional[str]]`, optional (default = `None`)
            Called when the user stops the command. It returns the option with which the same
            command resumes, `""` if it needs none, or `None` if there is nothing to resume.
        """
        subparser.add_argument(
            "--include-package",
            dest="packages",
            action="append",
            default=[],
            metavar="PACKAGE",
            help="additional packages to include",
        )
        subparser.add_argument(
            "-q",
            "--quiet",
            action="store_true",
            help="show no progress, only the result, warnings and errors",
        )
        subparser.add_argument(
            "--debug",
            action="store_true",
            help="show the traceback of an error, and what other packages log and warn about",
        )
        check_in_one_line(subparser)
        subparser.set_defaults(
            func=functools.partial(run, function, resume=resume, command=subparser.prog)
        )
        return subparser


def run(
    function: Callable[[argparse.Namespace], None],
    args: argparse.Namespace,
    resume: Optional[Resume] = None,
    command: str = "",
) -> None:
    """
    Run a command, as `Command.finish` describes it; `command` is its name with the program's. After
    an error that a user can mend, print a line and exit; after a signal, print one and end by it.
    """
    if args.debug:
        _run(function, args)
        return
    status, number = _USAGE, 0
    try:
        with terminable(), _only_our_messages():
            _run(function, args)
        return
    except BrokenPipeError:  # The reader of our output has closed it.
        _drop_output()
        sys.exit(_BROKEN_PIPE)
    except KeyboardInterrupt as error:
        number, word = signal_of(error)
        message = f"{word}{_how_to_resume(args, resume, command)}"
    except _MISTAKES as error:
        message = f"error: {describe(error)}"
    except _OF_LIBRARIES as error:
        message = f"error: {type(error).__name__}: {describe(error)} (--debug shows where)"
    # Outside of the handlers, the error is gone, and with it the progress bars that it kept open.
    end_with(message, status, number)


def _run(function: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> None:
    for package in args.packages:
        try:
            import_module_and_submodules(package)
        except (ImportError, TypeError, ValueError) as error:  # The last two for a bad name.
            raise ConfigurationError(f"--include-package {package}: {error}") from error
    with progress_of_command(args.quiet):
        function(args)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_output()
        raise OSError(error.errno, f"cannot write: {error.strerror}", "standard output") from error


def _how_to_resume(args: argparse.Namespace, resume: Optional[Resume], command: str) -> str:
    if resume is None:
        return ""
    option = resume(args)
    if option is None:
        return " before anything was saved; run the same command again"
    given = sys.argv[2:]
    # The option comes first, since nothing after `--` is an option.
    options = [option] if option and option not in given else []
    return f"; continue with: {command} {printable(shlex.join([*options, *given]))}"


def check_in_one_line(subparser: argparse.ArgumentParser) -> None:
    """Let a parser report wrong arguments, unknown ones too, in one line."""
    parse_known_args = subparser.parse_known_args
    command = subparser.prog

    def error(message: str) -> NoReturn:
        print(f"error: {describe(ValueError(message))}; see `{command} --help`", file=sys.stderr)
        sys.exit(_USAGE)

    def parse(args: Any = None, namespace: Any = None) -> Tuple[argparse.Namespace, List[str]]:
        parsed, unknown = parse_known_args(args, namespace)
        if unknown:
            error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    subparser.error = error  # type: ignore[method-assign]
    subparser.parse_known_args = parse  # type: ignore[method-assign,assignment]


@contextmanager
def _only_our_messages() -> Iterator[None]:
    """Hide what others log below errors, and their warnings unless Python was told to warn."""

    def is_for_users(record: logging.LogRecord) -> bool:
        package = record.name.split(".")[0]
        return record.levelno >= _LOWEST_LEVELS.get(package, logging.ERROR)

    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(is_for_users)
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.filterwarnings("ignore", module=rf"(?!{_PACKAGE}\b)")
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_for_users)


def _drop_output() -> None:
    """Discard further standard output, which would fail at the end of the process."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
