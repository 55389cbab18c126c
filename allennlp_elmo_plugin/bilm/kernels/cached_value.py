"""
Values made from parameters for inference, such as packed weights.

Rule: a cached value belongs to the storage, the version and a sample of the values of each
parameter, and `train()` and `eval()` drop it. This notices optimizers, `load_state_dict`, other
edits in place, and new values through `.data`; after an edit of a few numbers through `.data`, call
`train()` or `eval()`. Any thread may use it.
"""

from typing import (
    Any,
    Callable,
    Dict,
    Generic,
    Hashable,
    List,
    NamedTuple,
    Optional,
    Self,
    Sequence,
    TypeVar,
)

import torch

from allennlp_elmo_plugin.bilm.kernels.model_call import lasting_tensors

T = TypeVar("T")

# Numbers of a parameter that are compared in each call.
_SAMPLE_SIZE = 16


class _Kept(NamedTuple):
    """
    A value with what identifies its parameters: addresses and versions, and some of their numbers.
    """

    value: Any
    key: Hashable
    # They keep the storages, so that no other parameter can be at an address.
    views: List[torch.Tensor]
    sample: torch.Tensor  # (n_sampled,)


class CachedValue(Generic[T]):
    """
    A value that is made again when its parameters change. Copies and pickles are empty.
    """

    def __init__(self) -> None:
        self._kept: Optional[_Kept] = None

    def get(
        self, parameters: Sequence[torch.Tensor], make: Callable[[], T], key: Hashable = None
    ) -> T:
        """
        Return the value that `make` makes from the parameters. `key` is what else it depends on.
        """
        key = (key, *map(_version, parameters))
        kept = self._kept  # once: another thread may replace it
        if kept is None or kept.key != key or not torch.equal(kept.sample, torch.cat(kept.views)):
            kept = self._kept = None  # before the new one is made: both may not fit
            with lasting_tensors():
                views = list(map(_some_numbers, parameters))
                kept = self._kept = _Kept(make(), key, views, torch.cat(views))
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

    def _replicate_for_data_parallel(self) -> Self:
        replica = super()._replicate_for_data_parallel()
        for name, value in vars(replica).copy().items():
            if isinstance(value, CachedValue):
                setattr(replica, name, CachedValue())
        return replica


def _version(parameter: torch.Tensor) -> Hashable:
    # Inference tensors have no versions.
    return parameter.data_ptr(), 0 if parameter.is_inference() else parameter._version


def _some_numbers(parameter: torch.Tensor) -> torch.Tensor:
    """
    Return a view of some numbers of a parameter, the last among them.
    """
    values = parameter.detach().flatten()
    stride = max(1, values.numel() // _SAMPLE_SIZE)
    return values[(values.numel() - 1) % stride :: stride]
