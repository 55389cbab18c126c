"""Our commands as subcommands of the program `allennlp`, which also runs under our name."""

import argparse
import sys

from allennlp import commands
from allennlp.commands.subcommand import Subcommand
from allennlp.common.util import install_sigterm_handler

from allennlp_elmo_plugin import __version__
from allennlp_elmo_plugin.commands import COMMANDS
from allennlp_elmo_plugin.commands.command import Command, Parser
from allennlp_elmo_plugin.plugin.benchmark.command import ElmoBenchmark


def _register(command: Command) -> None:
    class Adapter(Subcommand):
        # Our commands import packages themselves, so that a missing one is an error like others.
        requires_plugins = False

        def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
            parser._parser_class, original = Parser, parser._parser_class
            subparser = command.add_subparser(parser)
            parser._parser_class = original
            return subparser

    Subcommand.register(command.name)(Adapter)


for _command in (*COMMANDS, ElmoBenchmark()):
    _register(_command)


def run_allennlp(program: str, arguments: list[str]) -> None:
    """Run AllenNLP's program under another name."""
    import allennlp.__main__  # noqa: F401  (It sets up logging.)

    sys.argv[1:] = arguments
    commands.__version__ = f"{__version__} (AllenNLP {commands.__version__})"
    install_sigterm_handler()
    commands.main(prog=program)
