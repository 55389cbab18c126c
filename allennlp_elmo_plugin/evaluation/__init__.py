"""Official scores of task models. Start with `official_evaluator.py`."""

from allennlp_elmo_plugin.evaluation.official_evaluator import OfficialEvaluator
