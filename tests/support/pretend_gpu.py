"""
A GPU for tests on machines without one: it computes on the CPU, and refuses tensors of several
devices in one operator and `.numpy()`.

Tensors are plain ones. Their memory (their storage) notes the device, so that all parts of torch
work: autograd, modules, optimizers, copies. Numbers are the CPU's, random ones too, and autocast
for "cuda" has no effect. Only the thread that begins has the GPU.
"""

import contextlib
import types
from typing import Any, Callable, Iterator, List

import pytest
import torch
from torch.testing import assert_close
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_CPU, _GPU = torch.device("cpu"), torch.device("cuda", 0)
_MARK = "is_on_pretend_gpu"
"""An attribute of storages."""
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}


@contextlib.contextmanager
def gpu_for_tests() -> Iterator[torch.device]:
    """The machine's GPU, or a pretended one where there is none."""
    if torch.cuda.is_available():
        yield _GPU
        return
    gpu = _Gpu()
    with pytest.MonkeyPatch.context() as patch, _Functions(gpu), _Operators(gpu):
        _patch_tensor(patch)
        _patch_cuda(patch)
        _patch_storages(patch)
        yield _GPU


def check_on_gpu(compute: Callable[[torch.device], Any], atol: float = 1e-5) -> None:
    """Compare what a function of the device returns on the CPU and on a GPU."""
    expected = compute(_CPU)
    with gpu_for_tests() as gpu:
        actual = compute(gpu)
        assert_close(actual, expected, atol=atol, rtol=10 * atol, check_device=False)


class _Gpu:
    default = _CPU
    """Where operators without tensors make some."""

    @contextlib.contextmanager
    def making_on(self, device: torch.device) -> Iterator[None]:
        before, self.default = self.default, device
        try:
            yield
        finally:
            self.default = before


class _Operators(TorchDispatchMode):
    """Runs each operator as the GPU would, or refuses it."""

    def __init__(self, gpu: _Gpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        here = _check(name, func._schema.arguments, args, kwargs)
        if kwargs.get("device") is not None and kwargs["device"].type == "cuda":
            here = _resolve(kwargs["device"])
            kwargs = {**kwargs, "device": _CPU}
        elif not _tensors((args, kwargs)):
            here = self.gpu.default
        outputs = func(*args, **kwargs)
        if here == _GPU and name != "copy_":
            for output in _tensors(outputs):
                _put(output, _GPU)
                if name == "_pack_padded_sequence":
                    break  # The sizes of the steps stay on the host.
        return outputs


def _check(name: str, arguments: Any, args: Any, kwargs: Any) -> torch.device:
    """Refuse inputs that are on several devices; return the device of all."""
    named = zip([each.name for each in arguments], args)
    given = {**dict(named), **kwargs}
    if name == "copy_" or not any(_place(each) == _GPU for each in _tensors(list(given.values()))):
        return _CPU
    for each in arguments:
        is_written = each.alias_info is not None and each.alias_info.is_write
        may_be_on_host = each.name in ("lengths", "batch_sizes") or (
            each.name == "indices" and name in _INDEXING
        )
        for tensor in _tensors(given.get(each.name)):
            is_number = tensor.dim() == 0 and not is_written
            if _place(tensor) == _CPU and not may_be_on_host and not is_number:
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found two devices "
                    f"(argument {each.name} of {name} is on the CPU)"
                )
    return _GPU


class _Functions(TorchFunctionMode):
    """
    Notes where functions make tensors: those that only make some on the device that they are given,
    others with a tensor on the GPU there.
    """

    def __init__(self, gpu: _Gpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = _tensors((args, kwargs))
        if func in _device_constructors() and not tensors:
            device = _resolve(kwargs.get("device") or _CPU)
            if device == _GPU:
                kwargs = {**kwargs, "device": _CPU}
            with self.gpu.making_on(_CPU):
                return _put(func(*args, **kwargs), device)
        device = _GPU if any(_place(each) == _GPU for each in tensors) else _CPU
        with self.gpu.making_on(device):
            if func is torch.Tensor.backward:
                gradient = kwargs.pop("gradient")
                with self:  # sees what is called in it
                    return torch.autograd.backward(args, gradient, **kwargs)
            return func(*args, **kwargs)


def _patch_tensor(patch: pytest.MonkeyPatch) -> None:
    old_device: Any = torch.Tensor.device
    old_numpy = torch.Tensor.numpy

    def device(self: torch.Tensor) -> torch.device:
        return _GPU if _place(self) == _GPU else old_device.__get__(self)

    def to(self: torch.Tensor, *args: Any, copy: bool = False, **kwargs: Any) -> torch.Tensor:
        if args and isinstance(args[0], torch.Tensor):
            args = (args[0].device, args[0].dtype)
        wanted, dtype, _, _ = torch._C._nn._parse_to(*args[:3], **kwargs)
        wanted, dtype = _resolve(wanted or self.device), dtype or self.dtype
        if (wanted, dtype) == (self.device, self.dtype) and not copy:
            return self
        device = _CPU if wanted == _GPU else wanted
        return _put(torch.ops.aten._to_copy(self, dtype=dtype, device=device), wanted)

    def numpy(self: torch.Tensor, **kwargs: Any) -> Any:
        if _place(self) == _GPU:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return old_numpy(self, **kwargs)

    for name, value in {
        "device": property(device),
        "is_cuda": property(lambda self: _place(self) == _GPU),
        "to": to,
        "cpu": lambda self: to(self, _CPU),
        "cuda": lambda self, device="cuda", *_, **__: to(self, device or "cuda"),
        "numpy": numpy,
    }.items():
        patch.setattr(torch.Tensor, name, value)


def _patch_cuda(patch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "device": contextlib.nullcontext(),
        "get_device_name": "Pretend GPU",
        "is_bf16_supported": True,
        "max_memory_allocated": 0,
    }.items():
        patch.setattr(torch.cuda, name, lambda *_, value=value: value)
    for name in (
        "_lazy_init set_device synchronize empty_cache manual_seed manual_seed_all set_rng_state "
        "set_rng_state_all reset_peak_memory_stats reset_max_memory_allocated"
    ).split():
        patch.setattr(torch.cuda, name, lambda *_: None)
    patch.setattr(torch.cuda, "get_rng_state", lambda *_: torch.get_rng_state())
    patch.setattr(torch.cuda, "get_rng_state_all", lambda: [torch.get_rng_state()])
    stream = types.SimpleNamespace(is_capturing=lambda: False)
    patch.setattr(torch.accelerator, "current_stream", lambda *_: stream)


def _patch_storages(patch: pytest.MonkeyPatch) -> None:
    """`torch.save` notes the device of each storage, and `torch.load` puts them there."""

    def tag(storage: Any) -> Any:
        return str(_GPU) if getattr(_untyped(storage), _MARK, False) else None

    def restore(storage: Any, location: str) -> Any:
        if not location.startswith("cuda"):
            return None
        _resolve(location)
        setattr(_untyped(storage), _MARK, True)
        return storage

    def cuda(storage: Any, device: Any = "cuda") -> Any:
        return restore(storage.clone(), str(_resolve(device)))

    patch.setattr(torch.UntypedStorage, "cuda", cuda)
    registry: Any = torch.serialization._package_registry
    patch.setattr(torch.serialization, "_package_registry", [(-1, tag, restore), *registry])


def _resolve(device: Any) -> torch.device:
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if device.type != "cuda":
        return device
    if device.index:
        raise RuntimeError("CUDA error: invalid device ordinal")
    return _GPU


def _tensors(value: Any) -> List[torch.Tensor]:
    return [each for each in tree_leaves(value) if isinstance(each, torch.Tensor)]


def _place(tensor: torch.Tensor) -> torch.device:
    on_gpu = any(getattr(storage, _MARK, False) for storage in _storages(tensor))
    return _GPU if on_gpu else _CPU


def _put(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    for storage in _storages(tensor):
        setattr(storage, _MARK, device == _GPU)
    return tensor


def _storages(tensor: torch.Tensor) -> List[Any]:
    """Return the storages of a tensor: one, those of a sparse tensor's parts, or none."""
    if tensor.layout == torch.sparse_coo:
        with torch.no_grad():
            parts = torch.Tensor._values(tensor), torch.Tensor._indices(tensor)
            return [part.untyped_storage() for part in parts]
    try:
        return [tensor.untyped_storage()]
    except NotImplementedError:
        return []  # a packed one of oneDNN or of a quantized product: for the CPU alone


def _untyped(storage: Any) -> Any:
    return getattr(storage, "_untyped_storage", storage)
