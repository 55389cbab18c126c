"""
`python -m allennlp_elmo_plugin COMMAND ...` runs `allennlp COMMAND ...` with this plugin, without a
file `.allennlp_plugins`. Our own commands import other plugins only when they need them.
"""

import allennlp.__main__  # noqa: F401  (It sets up logging.)
from allennlp import commands
from allennlp.common.util import install_sigterm_handler

from allennlp_elmo_plugin.version import __version__


def run() -> None:
    """Run AllenNLP's program under our name."""
    commands.__version__ = f"{__version__} (AllenNLP {commands.__version__})"
    install_sigterm_handler()
    commands.main(prog="python -m allennlp_elmo_plugin")


if __name__ == "__main__":
    run()
