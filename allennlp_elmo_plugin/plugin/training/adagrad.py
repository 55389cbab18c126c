"""AllenNLP's optimizer "adagrad", made fast on a GPU when some gradients are sparse."""

from allennlp.training.optimizers import AdagradOptimizer, Optimizer

from allennlp_elmo_plugin.plugin.registration import override_registered
from allennlp_elmo_plugin.training.optimizer import Adagrad


@override_registered(Optimizer, "adagrad")
class SparseAdagrad(Adagrad, AdagradOptimizer):
    """AllenNLP's Adagrad; see `Adagrad`."""
