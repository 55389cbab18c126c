"""Predictors of AllenNLP."""

from allennlp_elmo_plugin.predictors.bidirectional_lm import BidirectionalLanguageModelPredictor
