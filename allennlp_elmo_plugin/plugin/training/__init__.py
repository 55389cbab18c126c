"""
Additions to AllenNLP's training. `language_model_trainer.py` hands language models to the loop in
`allennlp_elmo_plugin/training`; `run_folder.py` locks the folder of a run.
"""

from allennlp_elmo_plugin.plugin.training.checkpointer import WholeCheckpointer
from allennlp_elmo_plugin.plugin.training.evaluation import LanguageModelEvaluator
from allennlp_elmo_plugin.plugin.training.language_model_trainer import LanguageModelTrainer
