from typing import Any, Callable, Dict, Generic, Hashable, Optional, Sequence, TypeVar

import torch

T = TypeVar("T")

# Numbers of a parameter that are looked at to see whether it has changed.
_SAMPLE = 64


class Prepared(Generic[T]):
    """
    What is made of parameters for inference alone, such as packed weights: made once, and again
    when a parameter has changed, be it by an optimizer, `load_state_dict`, `.to()` or assignment to
    its `data`. It is left out of copies and pickles.
    """

    def __init__(self) -> None:
        self._value: Optional[T] = None
        self._signature: Optional[Hashable] = None

    def get(
        self, parameters: Sequence[torch.Tensor], make: Callable[[], T], key: Hashable = None
    ) -> T:
        """
        # Parameters

        parameters : `Sequence[torch.Tensor]`
            What the result depends on.
        make : `Callable[[], T]`
            Makes it.
        key : `Hashable`, optional (default = `None`)
            What else the result depends on.
        """
        signature = (key, *map(_signature, parameters))
        if self._value is None or signature != self._signature:
            self._value = None  # before the new one is made: both may not fit
            with torch.no_grad():
                self._value = make()
            self._signature = signature
        return self._value

    def __getstate__(self) -> Dict[str, Any]:
        return {"_value": None, "_signature": None}


def _signature(parameter: torch.Tensor) -> Hashable:
    values = parameter.detach()
    # The version does not count what is done to `data`: (at most 64,), wherever they lie in memory
    step = max(1, values.numel() // _SAMPLE)
    sample = values.as_strided((min(_SAMPLE, values.numel()),), (step,))
    version = 0 if parameter.is_inference() else parameter._version
    return (values.data_ptr(), version, values.dtype, values.device, float(sample.sum()))
