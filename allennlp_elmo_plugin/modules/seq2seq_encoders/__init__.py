"""Sequence encoders of AllenNLP."""

from allennlp_elmo_plugin.modules.seq2seq_encoders.elmo_output_encoder import ElmoOutputEncoder
