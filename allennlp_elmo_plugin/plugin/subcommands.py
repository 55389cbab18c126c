"""Our commands as subcommands of the program `allennlp`."""

import argparse

from allennlp.commands.subcommand import Subcommand

from allennlp_elmo_plugin.commands import COMMANDS
from allennlp_elmo_plugin.commands.command import Command, Parser
from allennlp_elmo_plugin.plugin.benchmark.command import ElmoBenchmark


def _register(command: Command) -> None:
    class Adapter(Subcommand):
        # Our commands have --include-package, so that a missing package is an error like others.
        requires_plugins = False

        def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
            parser._parser_class, original = Parser, parser._parser_class
            subparser = command.add_subparser(parser)
            parser._parser_class = original
            return subparser

    Subcommand.register(command.name)(Adapter)


for _command in (*COMMANDS, ElmoBenchmark()):
    _register(_command)
