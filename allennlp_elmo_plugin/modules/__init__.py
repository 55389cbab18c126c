"""
ELMo for the models of AllenNLP. Start with `elmo.py`, the module `Elmo`, then `elmo_bilm.py`, its
language model. `elmo_files.py` finds a model by any of its names.
"""

from allennlp_elmo_plugin.modules.elmo import Elmo, batch_to_ids
from allennlp_elmo_plugin.modules.elmo_output_encoder import ElmoOutputEncoder
from allennlp_elmo_plugin.modules.elmo_token_embedder import ElmoTokenEmbedder
from allennlp_elmo_plugin.modules.padded_lstm import PaddedLstm
