"""Callbacks of AllenNLP's trainer."""

from allennlp_elmo_plugin.training.callbacks.adagrad_state import AdagradStateCallback
from allennlp_elmo_plugin.training.callbacks.initial_validation import InitialValidationCallback
