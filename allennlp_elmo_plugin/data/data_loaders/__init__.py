"""Batches of text in the order that a language model with carried state needs."""

from allennlp_elmo_plugin.data.data_loaders.truncated_bptt import TruncatedBpttDataLoader
