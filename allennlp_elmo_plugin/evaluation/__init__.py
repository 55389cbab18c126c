"""
Official scores of task models. Start with `official_evaluator.py`, an evaluator of AllenNLP;
`scorers.py` has the scores, and `instance_scorers.py` reads their arguments from instances.
"""

from allennlp_elmo_plugin.evaluation.official_evaluator import OfficialEvaluator
