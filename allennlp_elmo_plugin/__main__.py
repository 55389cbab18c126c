"""
`python -m allennlp_elmo_plugin COMMAND ...` is `allennlp COMMAND ...` with this plugin, which needs
no `.allennlp_plugins` then. It prints nothing but what the command does; the `elmo*` commands start
sooner, since they import other plugins only where they need them.
"""

import allennlp.__main__  # noqa: F401  (It sets up logging.)
from allennlp import __version__, commands
from allennlp.common.util import install_sigterm_handler

from allennlp_elmo_plugin.quiet import import_plugins


def run() -> None:
    """Run AllenNLP's program under our name."""
    commands.import_plugins = import_plugins
    commands.__version__ = f"(AllenNLP {__version__})"
    install_sigterm_handler()
    commands.main(prog="python -m allennlp_elmo_plugin")


if __name__ == "__main__":
    run()
