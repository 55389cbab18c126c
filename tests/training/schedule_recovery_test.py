"""A run that is recovered by AllenNLP's loop with another end of its schedule."""

from typing import Any, Dict, List

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import (
    CombinedLearningRateScheduler,
    LearningRateScheduler,
)

from allennlp_elmo_plugin.training.schedule_recovery import exact_recovery

N_BATCHES = 5  # of an epoch

LINEAR = {"type": "linear_with_warmup", "warmup_steps": 2}
SLANTED = {"type": "slanted_triangular"}


class Run:
    """The learning rates of a training."""

    def __init__(self, settings: Dict[str, Any], num_epochs: int) -> None:
        self.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        self.schedule = LearningRateScheduler.from_params(
            Params(dict(settings)),
            optimizer=self.optimizer,
            num_epochs=num_epochs,
            num_steps_per_epoch=N_BATCHES,
        )
        self.n_batches = 0

    def train(self, n_batches: int) -> List[float]:
        rates = []
        for _ in range(n_batches):
            rates.append(self.optimizer.param_groups[0]["lr"])
            self.n_batches += 1
            self.schedule.step_batch(self.n_batches)
            if self.n_batches % N_BATCHES == 0:
                self.schedule.step()
        return rates

    def recover(self, other: "Run") -> None:
        self.n_batches = other.n_batches
        self.optimizer.load_state_dict(other.optimizer.state_dict())
        with exact_recovery(self.schedule):
            self.schedule.load_state_dict(other.schedule.state_dict())
        assert "load_state_dict" not in self.schedule.state_dict()


def combined(*schedulers: Any) -> Dict[str, Any]:
    return {"type": "combined", "schedulers": [list(each) for each in schedulers]}


SETTINGS = {
    "linear": LINEAR,
    "slanted": SLANTED,
    "constant_with_warmup": {"type": "constant_with_warmup", "num_warmup_steps": 7},
    "combined": combined((1, "constant"), (3, LINEAR)),
    "combined_with_torch": combined(
        (1, {"type": "exponential", "gamma": 0.5}),
        (3, {"type": "constant_with_warmup", "num_warmup_steps": 2}),
    ),
    "combined_to_its_end": combined((1, LINEAR), (1, LINEAR)),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("n_before", [3, N_BATCHES, N_BATCHES + 3, 2 * N_BATCHES, 13])
def test_rates_are_those_of_a_whole_run(name: str, n_before: int) -> None:
    settings = SETTINGS[name]
    expected = Run(settings, 4).train(4 * N_BATCHES)
    killed = Run(settings, 4)
    killed.train(n_before)
    recovered = Run(settings, 4)
    recovered.recover(killed)
    assert recovered.train(4 * N_BATCHES - n_before) == expected[n_before:]


@pytest.mark.parametrize("is_combined", [False, True])
@pytest.mark.parametrize("settings", [LINEAR, SLANTED])
def test_more_epochs(settings: Dict[str, Any], is_combined: bool) -> None:
    def whole(num_epochs: int) -> Dict[str, Any]:
        return combined((num_epochs, settings)) if is_combined else settings

    killed = Run(whole(2), 2)
    killed.train(N_BATCHES + 2)
    recovered = Run(whole(4), 4)
    recovered.recover(killed)
    n_left = 3 * N_BATCHES - 2
    expected = Run(whole(4), 4).train(4 * N_BATCHES)[-n_left:]
    # The first rate was set before the end of the run before.
    assert recovered.train(n_left)[1:] == expected[1:]


@LearningRateScheduler.register("combined_of_a_user")
class CombinedOfAUser(CombinedLearningRateScheduler):
    loaded: Any = None

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self.loaded = state_dict
        super().load_state_dict(state_dict)


def test_combined_of_a_user() -> None:
    settings = {**combined((1, "constant"), (3, LINEAR)), "type": "combined_of_a_user"}
    killed, recovered = Run(settings, 4), Run(settings, 4)
    killed.train(N_BATCHES + 3)
    recovered.recover(killed)
    schedule: Any = recovered.schedule
    assert schedule.loaded == killed.schedule.state_dict()


ADDED = {
    "linear": LINEAR,
    "exponential": {"type": "exponential", "gamma": 0.5},
    "cosine": {"type": "cosine", "t_initial": 4},
    "constant_with_warmup": {"type": "constant_with_warmup", "num_warmup_steps": 7},
}


@pytest.mark.parametrize("name", ADDED)
def test_combined_after_its_end(name: str) -> None:
    settings = combined((1, "constant"), (2, ADDED[name]))
    ended = Run(combined((1, "constant")), 1)
    ended.train(N_BATCHES)
    recovered = Run(settings, 3)
    recovered.recover(ended)
    expected = Run(settings, 3).train(3 * N_BATCHES)
    assert recovered.train(2 * N_BATCHES) == expected[N_BATCHES:]


def test_combined_with_plateau_after_its_end() -> None:
    ended = Run(combined((1, LINEAR)), 1)
    ended.train(N_BATCHES)
    recovered = Run(combined((1, LINEAR), (1, {"type": "reduce_on_plateau"})), 2)
    recovered.recover(ended)
    assert recovered.schedule.current_scheduler.lr_scheduler.num_bad_epochs == 0  # type: ignore


@pytest.mark.parametrize("added", [[(4, LINEAR)], [(1, LINEAR), (9, LINEAR)]], ids=len)
def test_combined_that_begins_too_early(added: List[Any]) -> None:
    ended = Run(combined((1, LINEAR)), 3)
    ended.train(3 * N_BATCHES)
    with pytest.raises(ConfigurationError, match='has had 3 epochs.* let .* 3 epochs .*"constant"'):
        Run(combined(*added), 5).recover(ended)
    # as the message says
    Run(combined((1, LINEAR), (2, "constant"), (2, LINEAR)), 5).recover(ended)


@LearningRateScheduler.register("replaced")
class Replaced(LearningRateScheduler):
    """A user's own that replaces all that it has."""

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self.__dict__ = {**state, "optimizer": self.optimizer}


def test_a_schedule_that_replaces_its_attributes() -> None:
    killed = Run({"type": "replaced"}, 2)
    killed.train(3)
    Run({"type": "replaced"}, 2).recover(killed)
