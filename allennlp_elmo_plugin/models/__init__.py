"""Models of AllenNLP."""

from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
