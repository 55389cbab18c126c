"""
The layouts of language models' files, one module each. To add one, write a subclass of `Layout`
(`layout.py`), and name it in `LAYOUTS`, and its files in `PATTERNS` and `WHOLE_MODELS`
(`../file_names.py`).
"""

from allennlp_elmo_plugin.pretrained.checkpoints.bilm_tf import BilmTf, HubModule
from allennlp_elmo_plugin.pretrained.checkpoints.layout import Layout
from allennlp_elmo_plugin.pretrained.checkpoints.many_langs import ManyLangs
from allennlp_elmo_plugin.pretrained.checkpoints.training_checkpoint import TrainingCheckpoint
from allennlp_elmo_plugin.pretrained.checkpoints.training_run import TrainingRun

LAYOUTS: tuple[Layout, ...] = (
    ManyLangs(),
    TrainingCheckpoint(),
    TrainingRun(),
    BilmTf(),
    HubModule(),
)
"""All layouts. The first one that fits a folder, or the path of weights, counts."""
