"""
Training of language models in torch alone. Start with `language_model.py`, the model with its
losses; `text_batches.py` reads its text; `trainer.py` trains, saves and resumes; `settings.py`
makes a run of `elmo-train` from its settings.
"""

from allennlp_elmo_plugin.training.evaluation import evaluate
from allennlp_elmo_plugin.training.language_model import LanguageModel
from allennlp_elmo_plugin.training.optimizer import Adagrad, Adam, clip_grad_norm_
from allennlp_elmo_plugin.training.text_batches import TextBatches
from allennlp_elmo_plugin.training.trainer import Trainer
