"""
A GPU for tests on machines without one: it computes on the CPU, refuses tensors of several devices
in one operator and `.numpy()`, and counts waits and copies.

Tensors are plain ones. Which device each is on is kept by its memory (its storage), so that all
parts of torch work: autograd, modules, optimizers, copies.

```
with PretendGpu() as gpu:
    model.to("cuda:0")
    inputs = inputs.to("cuda:0")
    with gpu.count() as events:
        model(inputs)
    assert sum(kind == "sync" for kind, _ in events) <= 8, events
```

Numbers are the CPU's, random ones too, and autocast for "cuda" has no effect.
"""

import contextlib
import functools
import re
import threading
import types
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode

_CPU = torch.device("cpu")
_TO: Any = torch.Tensor.to
_DEVICE: Any = torch.Tensor.device

# Operators that wait for the GPU, as the host needs a number or a size from it. Copies and indexing
# wait only with some arguments.
_SYNCING = {
    "_local_scalar_dense",
    "_unique2",
    "_coalesce",
    "allclose",
    "equal",
    "masked_select",
    "multinomial",
    "nonzero",
    "repeat_interleave",
    "unique_consecutive",
    "unique_dim",
}
_INDEXING = {"index", "index_put", "_index_put_impl"}

Event = Tuple[str, str]
"""`"sync"` or `"host_to_device"`, and the operator."""


class PretendGpu:
    """A context in which torch has a GPU; see the module's docstring."""

    is_real = False
    device = torch.device("cuda", 0)

    def __init__(self) -> None:
        self._counting: List[List[Event]] = []
        # For the address of a storage: that it still lives, and its device; None where it is still
        # to be found out: made inside an operator without a tensor to go by. All others: the CPU.
        self._places: Dict[int, Tuple[StorageWeakRef, Optional[torch.device]]] = {}
        self._max_places = 1000
        self._local = threading.local()
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> "PretendGpu":
        with contextlib.ExitStack() as exits:
            self._patch_tensor(exits)
            self._patch_cuda(exits)
            self._patch_storages(exits)
            # `torch.tensor` makes a tensor on the CPU, and copies it where the mode sees that.
            torch._C._set_only_lift_cpu_tensors(True)
            exits.callback(torch._C._set_only_lift_cpu_tensors, False)
            exits.enter_context(_Factories(self))
            exits.enter_context(_Operators(self))
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        self._exits.close()

    @contextlib.contextmanager
    def count(self) -> Iterator[List[Event]]:
        """List what costs time on a GPU: waits of the host for it, and copies to it."""
        events: List[Event] = []
        self._counting.append(events)
        try:
            yield events
        finally:
            self._counting.pop()

    # Places

    @contextlib.contextmanager
    def making_on(self, device: Optional[torch.device]) -> Iterator[None]:
        """Put new tensors of this thread there."""
        before = getattr(self._local, "making_on", None)
        self._local.making_on = device
        try:
            yield
        finally:
            self._local.making_on = before

    def place(self, tensor: torch.Tensor) -> Optional[torch.device]:
        for storage in _storages(tensor):
            return self._places.get(storage._cdata, (None, _CPU))[1]
        return _CPU

    def is_here(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is on the GPU."""
        return (self.place(tensor) or _CPU).type == "cuda"

    def _put(self, storage: Any, place: Optional[torch.device]) -> None:
        if len(self._places) > self._max_places:
            for old, (reference, _) in self._places.copy().items():
                if reference.expired():
                    self._places.pop(old, None)
            self._max_places = 2 * len(self._places) + 1000
        if place == _CPU:
            self._places.pop(storage._cdata, None)
        else:
            self._places[storage._cdata] = StorageWeakRef(storage), place

    def resolve(self, device: Any) -> torch.device:
        device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        if device.type != "cuda":
            return device
        if device.index:
            raise RuntimeError("CUDA error: invalid device ordinal")
        return self.device

    # Operators

    def happened(self, kind: str, operator: str) -> None:
        for events in self._counting:
            events.append((kind, operator))

    def dispatch(self, operator: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        """Run an operator as the GPU would, or refuse it."""
        making_on: Optional[torch.device] = getattr(self._local, "making_on", None)
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cuda":
            making_on = self.resolve(kwargs["device"])
            kwargs = {**kwargs, "device": _CPU}
        name, arguments = _information(operator)
        given = [*zip(arguments, args), *((each, kwargs.get(each)) for each in arguments)]
        inputs = [
            _Input(key, arguments[key], tensor, self.place(tensor))
            for key, value in given
            for tensor in _tensors(value)
        ]
        if name == "_to_copy" and making_on is not None:
            self._count_copy(name, inputs[0].place, making_on)
            here = making_on
        else:
            here = self._check(name, inputs)
            if here.type == "cuda":
                self._count_syncs(name, args, kwargs, inputs)
        for each in inputs:
            if each.place is None and here.type == "cuda":
                for storage in _storages(each.tensor):
                    self._put(storage, here)
        outputs = operator(*args, **kwargs)
        # Afterwards, since `set_` changes which memory a tensor has.
        known = {storage._cdata for each in inputs for storage in _storages(each.tensor)}
        if making_on is None and (here != _CPU or any(each.place == _CPU for each in inputs)):
            making_on = here
        for i, output in enumerate(_tensors(outputs)):
            is_for_host = name == "_pack_padded_sequence" and i == 1  # the sizes of the steps
            for storage in _storages(output):
                if storage._cdata not in known:
                    self._put(storage, _CPU if is_for_host else making_on)
        return outputs

    def _check(self, name: str, inputs: "List[_Input]") -> torch.device:
        """
        Refuse inputs that are on several devices; return that of all, the GPU's if one is there.
        """
        gpus = [each.place for each in inputs if each.place is not None and each.place != _CPU]
        if not gpus:
            return _CPU
        here = gpus[0]
        for each in inputs:
            is_taken = each.place in (None, here) or (
                each.place == _CPU
                and not each.written
                and (
                    each.tensor.dim() == 0
                    or (name in _INDEXING and each.name == "indices")
                    or each.name in ("lengths", "batch_sizes")
                )
            )
            if name != "copy" and not is_taken:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but found two devices, {here} "
                    f"and {each.place}! (argument {each.name} of {name})"
                )
        return here

    def _count_copy(
        self, name: str, source: Optional[torch.device], target: Optional[torch.device]
    ) -> None:
        from_cpu, to_cpu = (source or _CPU).type == "cpu", (target or _CPU).type == "cpu"
        if from_cpu != to_cpu:
            self.happened("host_to_device" if from_cpu else "sync", name)

    def _count_syncs(
        self, name: str, args: Any, kwargs: Dict[str, Any], inputs: "List[_Input]"
    ) -> None:
        if name == "copy":
            self._count_copy(name, inputs[1].place, inputs[0].place)
        elif name in _INDEXING:
            values = [each.tensor.numel() for each in inputs if each.name == "values"]
            for each in inputs:
                if each.name == "indices" and each.place == _CPU:
                    self.happened("host_to_device", name)
                # CUDA calls `masked_fill_` for one value.
                elif each.name == "indices" and each.tensor.dtype == torch.bool and values != [1]:
                    self.happened("sync", name)
        elif name in _SYNCING and kwargs.get("output_size") is None:
            self.happened("sync", name)

    # The rest of torch

    def _patch_tensor(self, exits: contextlib.ExitStack) -> None:
        gpu = self

        def device(self: torch.Tensor) -> torch.device:
            place = gpu.place(self)
            return place if place is not None and place.type == "cuda" else _DEVICE.__get__(self)

        def to(self: torch.Tensor, *args: Any, copy: bool = False, **kwargs: Any) -> torch.Tensor:
            if args and isinstance(args[0], torch.Tensor):
                wanted, dtype = args[0].device, args[0].dtype
            else:
                wanted, dtype, _, _ = torch._C._nn._parse_to(*args[:3], **kwargs)
            target = self.device if wanted is None else gpu.resolve(wanted)
            dtype = dtype or self.dtype
            if target == self.device:
                return _TO(self, dtype=dtype, copy=copy)
            if {target.type, self.device.type} <= {"cpu", "cuda"}:
                with gpu.making_on(target):
                    return torch.ops.aten._to_copy(self, dtype=dtype)
            return _TO(self, target, dtype)

        def to_host(old: Any, is_refused: bool) -> Any:
            @functools.wraps(old)
            def wrapper(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
                if not gpu.is_here(self):
                    return old(self, *args, **kwargs)
                if is_refused:
                    raise TypeError("can't convert cuda:0 device type tensor to numpy")
                gpu.happened("sync", old.__name__)
                return old(gpu.uncounted_copy(self, _CPU))

            return wrapper

        for name, value in {
            "device": property(device),
            "is_cuda": property(gpu.is_here),
            "to": to,
            "cpu": lambda self: to(self, _CPU),
            "cuda": lambda self, device="cuda", *_, **__: to(self, device or "cuda"),
            "numpy": to_host(torch.Tensor.numpy, is_refused=True),
            "__array__": to_host(torch.Tensor.__array__, is_refused=True),
            "tolist": to_host(torch.Tensor.tolist, is_refused=False),
        }.items():
            _patch(exits, torch.Tensor, name, value)

    def uncounted_copy(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        counting, self._counting = self._counting, []
        try:
            return tensor.detach().to(device)
        finally:
            self._counting = counting

    def _patch_cuda(self, exits: contextlib.ExitStack) -> None:
        replacements: Dict[str, Any] = {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "device": lambda _: contextlib.nullcontext(),
            "synchronize": lambda *_: self.happened("sync", "synchronize"),
            "get_device_name": lambda *_: "Pretend GPU",
            "is_bf16_supported": lambda *_: True,
            "get_rng_state": lambda *_: torch.get_rng_state(),
            "get_rng_state_all": lambda: [torch.get_rng_state()],
            "max_memory_allocated": lambda *_: 0,
        }
        for name in (
            "_lazy_init set_device empty_cache manual_seed manual_seed_all set_rng_state "
            "set_rng_state_all reset_peak_memory_stats reset_max_memory_allocated"
        ).split():
            replacements[name] = lambda *_: None
        for name, value in replacements.items():
            _patch(exits, torch.cuda, name, value)
        stream = types.SimpleNamespace(is_capturing=lambda: False)
        _patch(exits, torch.accelerator, "current_stream", lambda *_: stream)

    def _patch_storages(self, exits: contextlib.ExitStack) -> None:
        """`torch.save` notes the device of each storage, and `torch.load` puts them there."""
        registry: Any = torch.serialization._package_registry

        def tag(storage: Any) -> Optional[str]:
            place = self._places.get(_untyped(storage)._cdata, (None, _CPU))[1]
            return None if place is None or place.type == "cpu" else str(place)

        def restore(storage: Any, location: str) -> Any:
            if not location.startswith("cuda"):
                return None
            self._put(_untyped(storage), self.resolve(location))
            return storage

        def cuda(storage: Any, device: Any = None) -> Any:
            return restore(storage.clone(), str(self.resolve("cuda" if device is None else device)))

        _patch(exits, torch.UntypedStorage, "cuda", cuda)
        entry = (-1, tag, restore)
        registry.insert(0, entry)
        exits.callback(registry.remove, entry)


class RealGpu:
    """A GPU that is there, for the same tests. Counts skip the test that asks for them."""

    is_real = True
    device = torch.device("cuda", 0)

    def __enter__(self) -> "RealGpu":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    @contextlib.contextmanager
    def count(self) -> Iterator[List[Event]]:
        pytest.skip("a real GPU does not count")
        yield []


def gpu_for_tests() -> Any:
    """Return the machine's GPU, or a pretend one where there is none."""
    return RealGpu() if torch.cuda.is_available() else PretendGpu()


class _Input(NamedTuple):
    name: str
    written: bool
    tensor: torch.Tensor
    place: Optional[torch.device]


@functools.cache
def _information(operator: Any) -> Tuple[str, Dict[str, bool]]:
    """
    Return an operator's name, without the `_` of one that works in place, and for each argument
    whether it is written.
    """
    name = operator._schema.name.split("::")[1]
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    # Such as `(Tensor(a!) self, Tensor other) -> Tensor(a!)`
    signature = str(operator._schema).rsplit("->", 1)[0]
    arguments = {
        each.name: bool(re.search(rf"!\)\S* {each.name}\b", signature))
        for each in operator._schema.arguments
    }
    return name, arguments


class _Operators(TorchDispatchMode):
    def __init__(self, gpu: PretendGpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.gpu.dispatch(func, args, kwargs or {})


class _Factories(TorchFunctionMode):
    """
    Sees the functions that make tensors where they are called, rather than inside other operators.
    """

    def __init__(self, gpu: PretendGpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in _device_constructors():
            return func(*args, **kwargs)
        device = self.gpu.resolve(kwargs.get("device") or _CPU)
        if "out" in kwargs or func is torch.sparse_coo_tensor:  # torch would find them on the CPU
            kwargs = {**kwargs, "device": None}
        if any(True for _ in _tensors(args)):
            return func(*args, **kwargs)
        with self.gpu.making_on(device):
            return func(*args, **kwargs)


def _patch(exits: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Replace an attribute until `exits` is closed."""
    if name in vars(owner):
        exits.callback(setattr, owner, name, vars(owner)[name])
    else:
        exits.callback(delattr, owner, name)
    setattr(owner, name, value)


def _storages(tensor: torch.Tensor) -> List[Any]:
    """Return the storages of a tensor: one, those of a sparse tensor's parts, or none."""
    if tensor.layout == torch.sparse_coo:
        with torch.no_grad():
            return [
                part.untyped_storage()
                for part in (
                    torch.Tensor._values(tensor),
                    torch.Tensor._indices(tensor),
                )
            ]
    try:
        return [tensor.untyped_storage()]
    except NotImplementedError:
        return []  # a packed one of oneDNN or of a quantized product: for the CPU alone


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _untyped(storage: Any) -> Any:
    return getattr(storage, "_untyped_storage", storage)
