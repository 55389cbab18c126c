"""ELMo for the models of AllenNLP."""

from allennlp_elmo_plugin.modules.elmo import Elmo, batch_to_ids
from allennlp_elmo_plugin.modules.seq2seq_encoders import ElmoOutputEncoder
from allennlp_elmo_plugin.modules.token_embedders import ElmoMultiTokenEmbedder, ElmoTokenEmbedder
