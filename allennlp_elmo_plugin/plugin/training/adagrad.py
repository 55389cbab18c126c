"""AllenNLP's optimizer "adagrad", made fast on a GPU when some gradients are sparse."""

from typing import Any

from allennlp.training.optimizers import AdagradOptimizer, Optimizer

from allennlp_elmo_plugin.plugin.registration import override_registered


@override_registered(Optimizer, "adagrad")
class SparseAdagrad(AdagradOptimizer):
    """
    AllenNLP's Adagrad. On a GPU torch updates the parameters of a group together, unless one of
    them has a sparse gradient. So each step splits the groups by the kind of gradient; schedules
    and checkpoints see the original groups.
    """

    def step(self, closure: Any = None) -> Any:
        groups = self.param_groups
        self.param_groups = []
        for group in groups:
            parts: dict[bool, list[Any]] = {}
            for parameter in group["params"]:
                is_sparse = parameter.grad is not None and parameter.grad.is_sparse
                parts.setdefault(is_sparse, []).append(parameter)
            self.param_groups += [{**group, "params": part} for part in parts.values()]
        try:
            return super().step(closure)
        finally:
            self.param_groups = groups
