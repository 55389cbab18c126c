"""
Values made from parameters for inference, such as packed weights.

Rule: a cached value belongs to the storage, the version and a sample of the values of each
parameter, and `train()` and `eval()` drop it. This notices optimizers, `load_state_dict`, other
edits in place, and new values through `.data`; after an edit of a few numbers through `.data`, call
`train()` or `eval()`. Any thread may use it.
"""

from typing import Any, Callable, Dict, Generic, Hashable, Optional, Self, Sequence, TypeVar

import torch

from allennlp_elmo_plugin.bilm.kernels.model_call import lasting_tensors

T = TypeVar("T")

# Numbers of a parameter that are compared in each call.
_SAMPLE_SIZE = 16


class CachedValue(Generic[T]):
    """
    A value that is made again when its parameters change. Copies and pickles are empty.
    """

    def __init__(self) -> None:
        # One attribute, so that a thread sees a value and what it was made from together.
        self._kept: Optional[_Kept[T]] = None

    def get(
        self, parameters: Sequence[torch.Tensor], make: Callable[[], T], key: Hashable = None
    ) -> T:
        """
        Return the value that `make` makes from the parameters. `key` is what else it depends on.
        """
        kept = self._kept
        if kept is None or not kept.belongs_to(parameters, key):
            kept = self._kept = None  # before the new one is made: both may not fit
            with lasting_tensors():
                kept = _Kept(parameters, key)
                kept.value = make()
            self._kept = kept
        return kept.value

    def drop(self) -> None:
        """
        Make the value again at its next use.
        """
        self._kept = None

    def __getstate__(self) -> Dict[str, Any]:
        return {"_kept": None}


class CachingModule(torch.nn.Module):
    """
    A module whose `train()` and `eval()` drop its cached values.
    """

    def train(self, mode: bool = True) -> Self:
        for each in vars(self).values():
            if isinstance(each, CachedValue):
                each.drop()
        return super().train(mode)


class _Kept(Generic[T]):
    """
    A cached value with what identifies its parameters.
    """

    value: T

    def __init__(self, parameters: Sequence[torch.Tensor], key: Hashable) -> None:
        self.key = key
        self.states = list(map(_state, parameters))
        # They keep the storages, so that no other parameter can be at an address.
        self.views = list(map(_sample, parameters))
        self.sample = torch.cat(self.views)  # (n_sampled,)

    def belongs_to(self, parameters: Sequence[torch.Tensor], key: Hashable) -> bool:
        return (
            self.key == key
            and self.states == list(map(_state, parameters))
            and torch.equal(self.sample, torch.cat(self.views))
        )


def _state(parameter: torch.Tensor) -> Hashable:
    # Inference tensors have no versions.
    return parameter.data_ptr(), 0 if parameter.is_inference() else parameter._version


def _sample(parameter: torch.Tensor) -> torch.Tensor:
    """
    Return a view of some numbers of a parameter, the last among them.
    """
    values = parameter.detach().flatten()
    stride = max(1, values.numel() // _SAMPLE_SIZE)
    return values[(values.numel() - 1) % stride :: stride]
