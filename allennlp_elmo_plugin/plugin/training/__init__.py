"""
Additions to AllenNLP's trainer for language models. Start with `resumable_trainer.py`, which trains
and recovers; `run_folder.py` locks the folder of a run.
"""

from allennlp_elmo_plugin.plugin.training import adagrad, callbacks
from allennlp_elmo_plugin.plugin.training.evaluation import LanguageModelEvaluator
from allennlp_elmo_plugin.plugin.training.resumable_trainer import ResumableTrainer
from allennlp_elmo_plugin.plugin.training.run_folder import TrainingLoop
