"""
A GPU for tests on machines without one: it computes on the CPU, and refuses tensors of several
devices in one operator and `.numpy()`.

Tensors are plain ones, whose memory (storage) notes the device, so that all parts of torch work:
autograd, modules, optimizers, copies. Only the thread that begins has the GPU. What is copied to
the CPU without waiting is NaN until the next event is waited for.
"""

import contextlib
import types

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_CPU, _GPU = torch.device("cpu"), torch.device("cuda", 0)
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
_waits: list[str] = []  # what has waited for the GPU, or would
_copies: list[tuple] = []  # to the CPU, which nothing has waited for


def count_waits(function):
    """Return how often a function waits for the pretended GPU, except for events."""
    before = len(_waits)
    function()
    return len(_waits) - before


@contextlib.contextmanager
def gpu_for_tests():
    """The machine's GPU, or a pretended one where there is none."""
    if torch.cuda.is_available():
        yield _GPU
        return
    with pytest.MonkeyPatch.context() as patch, _Functions() as functions, _Operators(functions):
        run_backward = torch.autograd._engine_run_backward

        def run_with_modes(*args, **kwargs):
            with functions:  # which torch leaves for the call of `backward`
                return run_backward(*args, **kwargs)

        patch.setattr(torch.autograd, "_engine_run_backward", run_with_modes)
        _patch_tensor(patch)
        _patch_cuda(patch)
        _patch_storages(patch)
        yield _GPU


def check_on_gpu(compute, atol=1e-5):
    """Compare what a function of the device returns on the CPU and on a GPU."""
    expected = compute(_CPU)
    with gpu_for_tests() as gpu:
        actual = compute(gpu)
        assert_close(actual, expected, atol=atol, rtol=10 * atol, check_device=False)


class _Functions(TorchFunctionMode):
    """
    Notes where functions make tensors: those that only make some on the device that they are given,
    others with a tensor on the GPU there.
    """

    makes_on_gpu = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = {key: value for key, value in (kwargs or {}).items() if key != "pin_memory"}
        tensors = _tensors((args, kwargs))
        before, self.makes_on_gpu = self.makes_on_gpu, any(map(_is_on_gpu, tensors))
        try:
            device = _resolve(kwargs.get("device") or _CPU)
            if tensors or device != _GPU or func not in _device_constructors():
                return func(*args, **kwargs)
            return _put(func(*args, **{**kwargs, "device": _CPU}), device)
        finally:
            self.makes_on_gpu = before


class _Operators(TorchDispatchMode):
    """Runs each operator as the GPU would, or refuses it."""

    def __init__(self, functions):
        super().__init__()
        self.functions = functions

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        if name == "_local_scalar_dense" and _is_on_gpu(args[0]):
            _waits.append(name)
        if name == "copy_" and not _is_on_gpu(args[0]) and _is_on_gpu(args[1]):
            if args[2:] == (True,):  # without waiting
                _copies.append((args[0], args[1].clone()))
                return args[0].fill_(torch.nan)
            _waits.append(name)
        if _tensors((args, kwargs)):
            is_on_gpu = name != "copy_" and _check(name, func._schema.arguments, args, kwargs)
        else:
            is_on_gpu = self.functions.makes_on_gpu
        if kwargs.get("device") is not None and kwargs["device"].type == "cuda":
            is_on_gpu = True
            kwargs = {**kwargs, "device": _CPU}
        outputs = func(*args, **kwargs)
        # The sizes of packed steps stay on the host.
        for output in _tensors(outputs)[: 1 if name == "_pack_padded_sequence" else None]:
            if is_on_gpu:
                _put(output, _GPU)
        return outputs


def _check(name, arguments, args, kwargs):
    """Return whether inputs are on the GPU; refuse those on several devices."""
    inputs = {**dict(zip([arg.name for arg in arguments], args)), **kwargs}
    if not any(map(_is_on_gpu, _tensors(inputs))):
        return False
    for arg in arguments:
        is_written = arg.alias_info is not None and arg.alias_info.is_write
        is_index = arg.name == "indices" and name in _INDEXING
        may_be_on_cpu = is_index or arg.name in ("lengths", "batch_sizes")
        for tensor in _tensors(inputs.get(arg.name)):
            is_number = tensor.dim() == 0 and not is_written
            if not (_is_on_gpu(tensor) or may_be_on_cpu or is_number):
                raise RuntimeError(f"{arg.name} of {name} is on the CPU, and others on the GPU")
    return True


def _patch_tensor(patch):
    old_device = torch.Tensor.device
    old_numpy = torch.Tensor.numpy

    def device(self):
        return _GPU if _is_on_gpu(self) else old_device.__get__(self)

    def to(self, *args, copy=False, **kwargs):
        if args and isinstance(args[0], torch.Tensor):
            args = (args[0].device, args[0].dtype)
        wanted, dtype, is_late, _ = torch._C._nn._parse_to(*args[:3], **kwargs)
        wanted, dtype = _resolve(wanted or self.device), dtype or self.dtype
        if (wanted, dtype) == (self.device, self.dtype) and not copy:
            return self
        if wanted != self.device and not is_late:
            _waits.append("to")
        device = _CPU if wanted == _GPU else wanted
        return _put(torch.ops.aten._to_copy(self, dtype=dtype, device=device), wanted)

    def numpy(self, **kwargs):
        if _is_on_gpu(self):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return old_numpy(self, **kwargs)

    for name, value in {
        "device": property(device),
        "is_cuda": property(_is_on_gpu),
        "to": to,
        "cpu": lambda self: to(self, _CPU),
        "cuda": lambda self, device="cuda", *_, **__: to(self, device or "cuda"),
        "numpy": numpy,
        "pin_memory": lambda self: self,
    }.items():
        patch.setattr(torch.Tensor, name, value)


def _patch_cuda(patch):
    without_effect = (
        "_lazy_init set_device synchronize empty_cache manual_seed manual_seed_all set_rng_state "
        "set_rng_state_all reset_peak_memory_stats reset_max_memory_allocated"
    )
    for name, value in {
        **dict.fromkeys(without_effect.split()),
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "device": contextlib.nullcontext(),
        "get_device_capability": (7, 5),  # older than Triton's kernels need
        "get_device_name": "Pretend GPU",
        "get_rng_state": torch.get_rng_state(),
        "get_rng_state_all": [torch.get_rng_state()],
        "is_bf16_supported": True,
        "max_memory_allocated": 0,
    }.items():
        patch.setattr(torch.cuda, name, lambda *_, value=value: value)
    stream = types.SimpleNamespace(is_capturing=lambda: False)
    patch.setattr(torch.cuda, "current_stream", lambda *_: stream)
    patch.setattr(torch.cuda, "Event", _Event)
    patch.setattr(torch.accelerator, "current_stream", lambda *_: stream)


class _Event:
    """An event after the copies to the CPU that have been started."""

    def __init__(self, **_):
        pass

    def record(self, stream):
        self.copies, _copies[:] = [*_copies], []

    def synchronize(self):
        for target, source in self.copies:
            target.copy_(source)


def _patch_storages(patch):
    """`torch.save` notes the device of each storage, and `torch.load` puts them there."""

    def untyped(storage):
        return getattr(storage, "_untyped_storage", storage)

    def tag(storage):
        return "cuda:0" if hasattr(untyped(storage), "is_on_pretend_gpu") else None

    def restore(storage, location):
        if _resolve(location) != _GPU:
            return None
        untyped(storage).is_on_pretend_gpu = True
        return storage

    patch.setattr(torch.UntypedStorage, "cuda", lambda self, _: restore(self.clone(), "cuda"))
    registry = torch.serialization._package_registry
    patch.setattr(torch.serialization, "_package_registry", [(-1, tag, restore), *registry])


def _resolve(device):
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    return _GPU if device.type == "cuda" else device


def _tensors(value):
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _is_on_gpu(tensor):
    return any(hasattr(storage, "is_on_pretend_gpu") for storage in _storages(tensor))


def _put(tensor, device):
    """Note the device of new memory."""
    for storage in _storages(tensor):
        vars(storage).pop("is_on_pretend_gpu", None)
        if device == _GPU:
            storage.is_on_pretend_gpu = True
    return tensor


def _storages(tensor):
    """Return the storages of a tensor: one, those of a sparse tensor's parts, or none."""
    if tensor.layout == torch.sparse_coo:
        with torch.no_grad():
            parts = torch.Tensor._values(tensor), torch.Tensor._indices(tensor)
            return [part.untyped_storage() for part in parts]
    try:
        return [tensor.untyped_storage()]
    except NotImplementedError:
        return []  # a packed one of oneDNN or of a quantized product: for the CPU alone
