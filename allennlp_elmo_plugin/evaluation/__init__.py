from allennlp_elmo_plugin.evaluation.official_evaluator import OfficialEvaluator

__all__ = ["OfficialEvaluator"]
