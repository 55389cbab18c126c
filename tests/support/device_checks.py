"""Comparisons of what the CPU and a GPU compute."""

from typing import Any, Callable, List

import numpy
import torch

from tests.support.pretend_gpu import Event, gpu_for_tests

CPU = torch.device("cpu")


def arrays_of(value: Any) -> Any:
    """The same with numpy's arrays for tensors."""
    if isinstance(value, dict):
        return {key: arrays_of(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [arrays_of(each) for each in value]
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def assert_close(actual: Any, expected: Any, atol: float = 1e-5) -> None:
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_close(actual[key], expected[key], atol)
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for pair in zip(actual, expected):
            assert_close(*pair, atol)
    elif isinstance(expected, (numpy.ndarray, float)):
        numpy.testing.assert_allclose(actual, expected, rtol=10 * atol, atol=atol)
    else:
        assert actual == expected


def check_on_gpu(compute: Callable[[torch.device], Any], atol: float = 1e-5) -> None:
    """Compare what a function of the device returns on the CPU and on a GPU."""
    expected = arrays_of(compute(CPU))
    with gpu_for_tests() as gpu:
        actual = arrays_of(compute(gpu.device))
    assert_close(actual, expected, atol)


def assert_few(events: List[Event], syncs: int, copies: int) -> None:
    """Check how often the host waited for a `PretendGpu`, and copied to it, at most."""
    kinds = [kind for kind, _ in events]
    assert kinds.count("sync") <= syncs and kinds.count("host_to_device") <= copies, events
