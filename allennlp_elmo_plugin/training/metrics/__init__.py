"""Metrics of language models."""

from allennlp_elmo_plugin.training.metrics.token_perplexity import TokenPerplexity
