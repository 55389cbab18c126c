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
        del scheduler.load_state_dict


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
    elif scheduler._current_scheduler_first_epoch != scheduler.last_epoch + 1:
        raise ConfigurationError(
            f'learning_rate_scheduler: "combined" had ended after {scheduler.last_epoch + 1} '
            "epochs, and its last schedule can't become longer now. Add another one to its list"
        )
