"""
Official scores of task models. `official_evaluator.py` is an evaluator of AllenNLP; `scorers.py`
has the scores.
"""

from allennlp_elmo_plugin.evaluation.official_evaluator import OfficialEvaluator
