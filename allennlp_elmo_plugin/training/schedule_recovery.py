"""The learning rate's schedule in a run that is recovered."""

from contextlib import contextmanager
from functools import partial
from typing import Any, Dict, Iterator, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import (
    CombinedLearningRateScheduler,
    LearningRateScheduler,
    PolynomialDecay,
    SlantedTriangular,
)
from allennlp.training.learning_rate_schedulers.learning_rate_scheduler import (
    _PyTorchLearningRateSchedulerWithMetricsWrapper,
)

# Where AllenNLP's schedules keep their end. Those of a user's own may call something else so.
_ENDS = ((PolynomialDecay, "total_steps"), (SlantedTriangular, "num_epochs"))


@contextmanager
def exact_recovery(scheduler: Optional[LearningRateScheduler]) -> Iterator[None]:
    """
    In the `with` block, `scheduler.load_state_dict` continues the schedule where it was, as
    AllenNLP's does, but to the end that the config says: the run may have got more epochs.
    """
    if scheduler is None:
        yield
        return
    scheduler.load_state_dict = partial(_load, scheduler)  # type: ignore[method-assign]
    try:
        yield
    finally:
        # A user's own may have replaced its attributes.
        vars(scheduler).pop("load_state_dict", None)


def _load(scheduler: LearningRateScheduler, state: Dict[str, Any]) -> None:
    load = type(scheduler).load_state_dict
    if load is CombinedLearningRateScheduler.load_state_dict:  # not that of a user's subclass
        _load_combined(scheduler, state)
        return
    ends = {name: getattr(scheduler, name) for kind, name in _ENDS if isinstance(scheduler, kind)}
    load(scheduler, state)
    for name, end in ends.items():
        setattr(scheduler, name, end)


def _load_combined(scheduler: Any, state: Dict[str, Any]) -> None:
    """
    Load the state of "combined", which makes its current schedule when asked for it. That may set
    the learning rates, which the optimizer has loaded already.
    """
    groups = scheduler.optimizer.param_groups
    loaded = [{key: group[key] for key in group if key != "params"} for group in groups]
    scheduler.last_epoch = state["last_epoch"]
    scheduler.num_steps_per_epoch = state["num_steps_per_epoch"]
    current = scheduler.current_scheduler
    if current is None:
        return
    if state["current_scheduler"] is not None:
        for group, values in zip(groups, loaded):
            group.update(values)
        _load(current, state["current_scheduler"])
        return
    # The run goes on after the end of its schedules with one that its config has got since.
    n_epochs = scheduler.last_epoch + 1
    if scheduler._current_scheduler_first_epoch != n_epochs:
        raise ConfigurationError(
            f'learning_rate_scheduler: "combined" had ended in this run, which has had {n_epochs} '
            "epochs. One that is added must begin there: let those before it have "
            f'{n_epochs} epochs in all, with "constant" for epochs that had none'
        )
    # An epoch's end makes the next schedule and lets it make a step. The metric of that epoch,
    # which "reduce_on_plateau" compares, is not known any more.
    if not isinstance(current, _PyTorchLearningRateSchedulerWithMetricsWrapper):
        current.step()
