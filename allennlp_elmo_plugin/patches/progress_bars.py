"""AllenNLP's progress bars, which are readable in a log file and have room in a terminal."""

from allennlp.common import tqdm as allennlp_tqdm

from allennlp_elmo_plugin.patches.replaced_names import replace_attribute
from allennlp_elmo_plugin.progress import bar_of_allennlp


def apply() -> None:
    """
    Replace AllenNLP's bars, except in notebooks, where AllenNLP has widgets. Applying twice changes
    nothing.
    """
    if "zmqshell" not in allennlp_tqdm.SHELL:
        replace_attribute(allennlp_tqdm.Tqdm, "tqdm", staticmethod(bar_of_allennlp))
