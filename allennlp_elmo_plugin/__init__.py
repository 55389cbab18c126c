"""
ELMo for AllenNLP: pretraining, export and use. Importing this package is all that AllenNLP does
with a plugin, so importing it registers every component and applies the patches.
"""

from importlib.util import find_spec

from allennlp_elmo_plugin.version import INSTALL_ALLENNLP, __version__

if find_spec("allennlp") is None:
    raise ModuleNotFoundError(
        f"AllenNLP is not installed. Install it with: {INSTALL_ALLENNLP}", name="allennlp"
    )

from allennlp_elmo_plugin import commands, data, evaluation, models, modules, patches, training
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.modules import Elmo, batch_to_ids

__all__ = ["BiLm", "BiLmOptions", "Elmo", "ElmoEmbedder", "batch_to_ids"]

patches.apply()
