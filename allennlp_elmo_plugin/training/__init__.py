"""What training a language model needs beside AllenNLP's trainer."""

from allennlp_elmo_plugin.training import callbacks, metrics
from allennlp_elmo_plugin.training.resumable_trainer import ResumableTrainer
from allennlp_elmo_plugin.training.training_loop import TrainingLoop
