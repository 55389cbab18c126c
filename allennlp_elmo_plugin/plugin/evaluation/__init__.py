"""Official scores of task models. Start with `official_evaluator.py`."""

from allennlp_elmo_plugin.plugin.evaluation.official_evaluator import OfficialEvaluator
