"""
The program `allennlp-elmo-plugin`, also `python -m allennlp_elmo_plugin`. It runs our commands,
which need no AllenNLP, and all others through AllenNLP's program, with this plugin.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

from allennlp_elmo_plugin import activation, errors
from allennlp_elmo_plugin.version import INSTALL_ALLENNLP


def main(arguments: list[str] | None = None) -> int:
    """Run the program. Return its exit status, unless a command ends it."""
    arguments = sys.argv[1:] if arguments is None else arguments
    program = Path(sys.argv[0]).name
    if program == "__main__.py":
        program = f"python -m {__package__}"
    if not arguments or arguments[0].startswith("-"):
        return activation.main(program, arguments)
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
    elif find_spec("allennlp") is None:
        errors.end_with(
            f"error: {arguments[0]} is a command of AllenNLP, which is not installed: "
            f"{INSTALL_ALLENNLP}. Commands that don't need it: {', '.join(names)}",
            status=2,
        )
    else:
        from allennlp_elmo_plugin.plugin.subcommands import run_allennlp

        run_allennlp(program, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
