"""
The program `allennlp-elmo-plugin`, also `python -m allennlp_elmo_plugin`. It runs our commands,
which need no AllenNLP, and all others through AllenNLP's program, with this plugin.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

from allennlp_elmo_plugin import activation, errors
from allennlp_elmo_plugin.version import INSTALL_ALLENNLP, __version__


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
        _run_allennlp(program, arguments)
    return 0


def _run_allennlp(program: str, arguments: list[str]) -> None:
    import allennlp.__main__  # noqa: F401  (It sets up logging.)
    from allennlp import commands
    from allennlp.common.util import install_sigterm_handler

    sys.argv[1:] = arguments
    commands.__version__ = f"{__version__} (AllenNLP {commands.__version__})"
    install_sigterm_handler()
    commands.main(prog=program)


if __name__ == "__main__":
    sys.exit(main())
