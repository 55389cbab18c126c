"""The commands, one a module. `command.py` has what they share."""

from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.commands.elmo import Elmo
from allennlp_elmo_plugin.commands.elmo_configs import ElmoConfigs
from allennlp_elmo_plugin.commands.elmo_export import ElmoExport
from allennlp_elmo_plugin.commands.elmo_import import ElmoImport
from allennlp_elmo_plugin.commands.elmo_nearest import ElmoNearest
from allennlp_elmo_plugin.commands.elmo_perplexity import ElmoPerplexity
from allennlp_elmo_plugin.commands.elmo_plot import ElmoPlot
from allennlp_elmo_plugin.commands.elmo_probe import ElmoProbe
from allennlp_elmo_plugin.commands.elmo_train import ElmoTrain
from allennlp_elmo_plugin.commands.elmo_vocab import ElmoVocab

COMMANDS: tuple[Command, ...] = (
    *(Elmo(), ElmoConfigs(), ElmoExport(), ElmoImport()),
    *(ElmoNearest(), ElmoPerplexity(), ElmoPlot(), ElmoProbe(), ElmoTrain(), ElmoVocab()),
)
