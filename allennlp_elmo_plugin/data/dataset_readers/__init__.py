"""Text for language models as AllenNLP's instances."""

from allennlp_elmo_plugin.data.dataset_readers.truncated_bptt_lm import TruncatedBpttLmReader
