"""
A GPU for tests on machines without one: it computes on the CPU, keeps the rules of a real one, and
counts what costs time there.

Tensors are plain ones. Which device each is on is kept by its memory (its storage), so that all
parts of torch work: autograd, modules, optimizers, copies. A dispatch mode sees every operator and
`torch.Tensor`'s own methods are replaced where they name a device.

```
with PretendGpu() as gpu:
    model.to("cuda:0")
    inputs = inputs.to("cuda:0")
    with gpu.count() as counts:
        model(inputs)
    assert counts.syncs <= 8, counts.report()
    with gpu.capturing():  # refuses what a CUDA graph cannot capture: syncs and copies
        model(inputs)
```

`torch.cuda.CUDAGraph` notes operators instead of running them, and runs them on the same memory
when it is replayed.

What differs from a real GPU: numbers are the CPU's, random ones too; one launch is counted for each
operator, though some of CUDA's operators have several; autocast for "cuda" has no effect.
"""

import collections
import contextlib
import functools
import math
import re
import sys
import threading
import types
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _python_dispatch

_CPU = torch.device("cpu")
_OLD_TORCH = not hasattr(torch.Tensor, "untyped_storage")

# Operators that wait for the GPU, as the host needs a number or a size from it. Others wait only
# with some arguments: see `_count_syncs`.
_SYNCING = {
    "_local_scalar_dense",
    "_linalg_check_errors",
    "_unique",
    "_unique2",
    "allclose",
    "_coalesce",
    "bincount",
    "equal",
    "histc",
    "is_nonzero",
    "masked_select",
    "multinomial",
    "nonzero",
    "unique_consecutive",
    "unique_dim",
    "unique_dim_consecutive",
}
# Operators for which CUDA takes a tensor with one number, without dimensions, from the CPU too.
_TAKES_CPU_SCALARS = {
    "add",
    "atan2",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "copysign",
    "div",
    "eq",
    "fill",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "ge",
    "gt",
    "hypot",
    "index_put",
    "_index_put_impl",
    "le",
    "logaddexp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "lt",
    "masked_fill",
    "maximum",
    "minimum",
    "mul",
    "ne",
    "nextafter",
    "pow",
    "remainder",
    "rsub",
    "sigmoid_backward",
    "sub",
    "tanh_backward",
    "true_divide",
    "xlogy",
    *(f"_foreach_{name}" for name in ("add", "sub", "mul", "div")),
    *(() if _OLD_TORCH else ("where",)),
}
_INDEXING = {"index", "_unsafe_index", "index_put", "_unsafe_index_put", "_index_put_impl"}
# Arguments that CUDA wants on the CPU, whatever the device of the others.
_CPU_ARGUMENTS = {
    "_pack_padded_sequence": ("lengths",),
    "_pack_padded_sequence_backward": ("batch_sizes",),
    "tensor_split": ("tensor_indices_or_sections",),
}
# Operators that make memory without writing it.
_ALLOCATING = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize",
    "resize_as",
    "set",
    "_resize_output",
    "_sparse_coo_tensor_unsafe",
    "_sparse_coo_tensor_with_dims",
    "_sparse_coo_tensor_with_dims_and_tensors",
    "sparse_resize",
    "sparse_resize_and_clear",
}
_FACTORIES = """
    empty empty_permuted empty_strided ones arange bartlett_window blackman_window eye full
    hamming_window hann_window kaiser_window linspace logspace rand randn randint randperm range
    sparse_coo_tensor sparse_csr_tensor tril_indices triu_indices zeros scalar_tensor
""".split()
_LIKE_FACTORIES = """
    empty_like full_like ones_like rand_like randint_like randn_like zeros_like
""".split()
_RANDOM = """
    rand randn randint randperm bernoulli multinomial normal
    bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_
""".split()
_NEW_FACTORIES = "new new_empty new_empty_strided new_full new_ones new_zeros".split()


class Event(NamedTuple):
    """
    Something that costs time on a GPU.
    """

    kind: str
    """`"sync"`, `"host_to_device"` or `"launch"`."""
    operator: str
    where: str
    """The line of ours that it happened at, as `file:line`; empty for launches."""


class Counts:
    """
    What has happened on the GPU within `PretendGpu.count`.
    """

    def __init__(self) -> None:
        self.events: List[Event] = []

    def _count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)

    @property
    def syncs(self) -> int:
        """How often the host has waited for the GPU. A copy to the GPU is not one of them."""
        return self._count("sync")

    @property
    def host_to_device(self) -> int:
        """Copies from the host to the GPU."""
        return self._count("host_to_device")

    @property
    def launches(self) -> int:
        """Operators that computed or copied on the GPU; views and allocations are none."""
        return self._count("launch")

    def report(self) -> str:
        """
        Return the counts, and where each sync and copy came from.
        """
        lines = [
            f"{self.syncs} syncs, {self.host_to_device} copies to the GPU, {self.launches} launches"
        ]
        for (kind, operator, where), n in collections.Counter(self.events).most_common():
            lines.append(f"{n:6} {kind} {operator} {where}")
        return "\n".join(lines)


class PretendGpu:
    """
    A context in which torch has a GPU; see the module's docstring.

    # Parameters

    device_count : `int`, optional (default = `1`)
        How many GPUs there are.
    """

    is_real = False

    def __init__(self, device_count: int = 1) -> None:
        self.device_count = device_count
        self.device = torch.device("cuda", 0)
        self._counting: List[Counts] = []
        self._n_allocations: Dict[torch.device, int] = collections.Counter()
        # For the address of a storage: that it still lives, and its device; None where it is still
        # to be found out: made inside an operator without a tensor to go by. All others: the CPU.
        self._places: Dict[int, Tuple[StorageWeakRef, Optional[torch.device]]] = {}
        self._max_places = 1000
        self._local = threading.local()
        self._exits = contextlib.ExitStack()
        self._entered = False

    def __enter__(self) -> "PretendGpu":
        if not _OLD_TORCH:
            # It keeps a table of torch's functions from its first import on: not of the replaced.
            import torch._dynamo  # noqa: F401
        self._entered = True
        with contextlib.ExitStack() as exits:
            exits.enter_context(self._mode())
            self._patch_tensor(exits)
            self._patch_factories(exits)
            if _OLD_TORCH:
                self._patch_generators(exits)
            self._patch_cuda(exits)
            self._patch_storages(exits)
            self._patch_threads(exits)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        self._entered = False
        self._exits.close()

    @contextlib.contextmanager
    def count(self) -> Iterator[Counts]:
        """
        Count what happens within, in all threads.
        """
        counts = Counts()
        self._counting.append(counts)
        try:
            yield counts
        finally:
            self._counting.remove(counts)

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """
        Refuse, in this thread, what a CUDA graph cannot capture: syncs and copies from the host.
        """
        self._local.capturing = True
        try:
            yield
        finally:
            self._local.capturing = False

    def n_allocations(self, index: int) -> int:
        """
        Return how often memory was taken on a GPU so far.
        """
        return self._n_allocations[torch.device("cuda", index)]

    def out_of_memory(self) -> RuntimeError:
        """
        Return the error of a GPU whose memory is full.
        """
        kind = getattr(torch.cuda, "OutOfMemoryError", RuntimeError)
        return kind("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 1.00 GiB total)")

    # Places

    @contextlib.contextmanager
    def _with(self, **values: Any) -> Iterator[None]:
        """
        Set values of this thread: `paused` for operators that are the pretence's own affair,
        `making_on` for the device of tensors that are made.
        """
        before = {name: getattr(self._local, name, None) for name in values}
        vars(self._local).update(values)
        try:
            yield
        finally:
            vars(self._local).update(before)

    def _place(self, tensor: torch.Tensor) -> Optional[torch.device]:
        return self._place_of(self._storages(tensor))

    def _place_of(self, storages: Dict[int, Any]) -> Optional[torch.device]:
        for address in storages:
            return self._places.get(address, (None, _CPU))[1]
        return _CPU

    def _put(self, tensor: torch.Tensor, place: Optional[torch.device]) -> None:
        for address, storage in self._storages(tensor).items():
            self._put_storage(address, storage, place)

    def _put_storage(self, address: int, storage: Any, place: Optional[torch.device]) -> None:
        if len(self._places) > self._max_places:
            # `copy` is one step for other threads; `list(items())` makes tuples, where the garbage
            # collector may run and another thread go on.
            for old, (reference, _) in self._places.copy().items():
                if reference.expired():
                    self._places.pop(old, None)
            self._max_places = 2 * len(self._places) + 1000
        if place == _CPU:
            self._places.pop(address, None)
        else:
            self._places[address] = StorageWeakRef(storage), place
            if place is not None:
                self._n_allocations[place] += 1

    def _storages(self, tensor: torch.Tensor) -> Dict[int, Any]:
        """
        The storages of a tensor by their addresses: one, or those of a sparse tensor's parts.
        """
        if tensor.layout == torch.strided:
            try:
                storage: Any = (
                    tensor.storage()._untyped() if _OLD_TORCH else tensor.untyped_storage()
                )
            except NotImplementedError:
                return {}  # a packed one of oneDNN or of a quantized product: for the CPU alone
            return {storage._cdata: storage}
        if tensor.layout == torch.sparse_coo:
            with self._with(paused=True), torch.no_grad():
                parts = (tensor._values(), tensor._indices())
            return {key: storage for part in parts for key, storage in self._storages(part).items()}
        return {}

    def is_here(self, tensor: torch.Tensor) -> bool:
        """
        Return whether a tensor is on the GPU.
        """
        place = self._place(tensor)
        return place is not None and place.type == "cuda"

    def _known(self, tensor: torch.Tensor) -> torch.device:
        return self._place(tensor) or _CPU

    def _resolve(self, device: Any) -> torch.device:
        if isinstance(device, int):
            device = torch.device("cuda", device)
        device = torch.device(device)
        if device.type == "cuda":
            index = self._current_device() if device.index is None else device.index
            if index >= self.device_count:
                raise RuntimeError("CUDA error: invalid device ordinal")
            return torch.device("cuda", index)
        return device

    def _default_device(self) -> torch.device:
        if _OLD_TORCH:
            return _CPU
        for mode in reversed(torch.overrides._get_current_function_mode_stack()):
            if isinstance(mode, torch.utils._device.DeviceContext):
                return self._resolve(mode.device)
        return _CPU

    # Events

    def _happened(self, kind: str, operator: str) -> None:
        if kind != "launch" and getattr(self._local, "capturing", False):
            raise RuntimeError(f"CUDA error: {operator} ({kind}) when the stream is capturing")
        if not self._counting:
            return
        where = "" if kind == "launch" else _where()
        for counts in self._counting:
            counts.events.append(Event(kind, operator, where))

    # Operators

    def _mode(self) -> Any:
        if _OLD_TORCH:
            mode = _Mode(self, inner=None)  # type: ignore[call-arg]
            return _python_dispatch.enable_torch_dispatch_mode(mode, ignore_preexisting=True)
        return _Mode(self)

    def dispatch(self, operator: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        """
        Run an operator as the GPU would, or refuse it.
        """
        if getattr(self._local, "paused", False) or not self._entered:
            return operator(*args, **kwargs)
        making_on: Optional[torch.device] = getattr(self._local, "making_on", None)
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            making_on = self._resolve(device)
            kwargs = {**kwargs, "device": _CPU}
        info = _information(operator)
        inputs: List[_Input] = []
        for (name, written), value in zip(info.arguments, args):
            if isinstance(value, (torch.Tensor, list, tuple)):
                inputs.extend(self._inputs(name, written, value))
        for name, value in kwargs.items():
            if isinstance(value, (torch.Tensor, list, tuple)):
                inputs.extend(self._inputs(name, info.written.get(name, False), value))
        here = self._check(info, inputs)
        on_cpu = any(each.place == _CPU and each.tensor.dim() for each in inputs)
        there = here or (_CPU if on_cpu else None)
        for each in inputs:
            if each.place is None and there is not None:
                self._put(each.tensor, there)
        if here is not None:
            self._count_syncs(info.name, args, kwargs, inputs)
        graph: Optional[_Graph] = getattr(self._local, "graph", None)
        if graph is None:
            outputs = operator(*args, **kwargs)
        else:
            outputs = graph.note(operator, args, kwargs, inputs)

        if making_on is None:
            making_on = there or (_CPU if any(each.place == _CPU for each in inputs) else None)
        known = {
            address
            for each in inputs
            # `set_` changes which memory a tensor has.
            for address in (self._storages(each.tensor) if each.written else each.storages)
        }
        for each in inputs:
            if each.written and each.tensor.layout != torch.strided:
                self._put(each.tensor, each.place)  # it may have new parts
        changes = info.writes
        for i, output in enumerate(_tensors(outputs)):
            fresh = {k: v for k, v in self._storages(output).items() if k not in known}
            changes = changes or bool(fresh)
            is_sizes = info.name == "_pack_padded_sequence" and i == 1  # of the steps, for the host
            for address, storage in fresh.items():
                self._put_storage(address, storage, _CPU if is_sizes else making_on)
        if changes and info.name not in _ALLOCATING:
            on_gpu = (making_on or _CPU).type == "cuda" or here is not None
            empty = all(output.numel() == 0 for output in _tensors(outputs))
            is_copy_across = info.name == "copy" and len({each.place for each in inputs}) > 1
            is_sync_alone = info.name in ("_local_scalar_dense", "equal")
            is_noted = graph is not None
            if on_gpu and not (empty or is_copy_across or is_sync_alone or is_noted):
                self._happened("launch", info.name)
        return outputs

    def _inputs(self, name: str, written: bool, value: Any) -> "Iterator[_Input]":
        for tensor in _tensors(value):
            storages = self._storages(tensor)
            yield _Input(name, written, tensor, self._place_of(storages), storages)

    def _check(self, info: "_Information", inputs: "List[_Input]") -> Optional[torch.device]:
        """
        Refuse inputs that are on several devices; return that of the GPU, if one is.
        """
        gpus = {each.place for each in inputs if each.place is not None and each.place != _CPU}
        if not gpus:
            return None
        here = min(gpus, key=str) if len(gpus) > 1 else gpus.pop()
        if info.name == "copy":
            return here
        for each in inputs:
            if each.place is None or each.place == here:
                continue
            if each.name in _CPU_ARGUMENTS.get(info.name, ()):
                continue
            if each.place == _CPU and not each.written:
                if info.name in _INDEXING and each.name == "indices":
                    if inputs[0].place != _CPU:
                        continue
                elif each.tensor.dim() == 0 and info.name in _TAKES_CPU_SCALARS:
                    continue
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{here} and {each.place}! (argument {each.name} of {info.name})"
            )
        for name in _CPU_ARGUMENTS.get(info.name, ()):
            if any(each.name == name and each.place == here for each in inputs):
                raise RuntimeError(f"argument {name} of {info.name} must be on the CPU")
        return here

    def _count_syncs(
        self, name: str, args: Any, kwargs: Dict[str, Any], inputs: "List[_Input]"
    ) -> None:
        if name == "copy":
            target, source = inputs[0].place or _CPU, inputs[1].place or _CPU
            if source.type == "cuda" and target.type == "cpu":
                self._happened("sync", name)
            elif source.type == "cpu" and target.type == "cuda" and inputs[1].tensor.numel():
                self._happened("host_to_device", name)
        elif name in _INDEXING:
            indices = [each for each in inputs if each.name == "indices"]
            masks = [each for each in indices if each.tensor.dtype in (torch.bool, torch.uint8)]
            for each in indices:
                if each.place == _CPU:
                    self._happened("host_to_device", name)
            values = [each for each in inputs if each.name == "values"]
            if values and len(masks) == len(indices) == 1:
                value, accumulate = values[0], (*args[3:4], kwargs.get("accumulate", False))[0]
                if value.tensor.numel() == 1 and not accumulate and not self.is_here(value.tensor):
                    return  # CUDA calls `masked_fill_` for these
            for each in masks:
                if each.place != _CPU:
                    self._happened("sync", name)
        elif name == "repeat_interleave":
            output_size = kwargs.get("output_size")
            if output_size is None and not any(isinstance(each, int) for each in args):
                self._happened("sync", name)
        elif name in _SYNCING:
            self._happened("sync", name)

    # Methods of tensors

    def move(
        self,
        tensor: torch.Tensor,
        device: torch.device,
        dtype: Optional[torch.dtype] = None,
        operator: str = "to",
    ) -> torch.Tensor:
        """
        Return a copy of a tensor on another device.
        """
        place = self._known(tensor)
        if device.type == "cpu":
            self._happened("sync", operator)
        elif place.type == "cpu":
            self._happened("host_to_device", operator)
        else:
            self._happened("launch", operator)
        if torch.is_grad_enabled() and tensor.requires_grad:
            return _Move.apply(tensor, self, place, device, dtype)
        return self.copy_to(tensor, device, dtype)

    def copy_to(
        self, tensor: torch.Tensor, device: torch.device, dtype: Optional[torch.dtype]
    ) -> torch.Tensor:
        """
        Copy without counting.
        """
        with self._with(paused=True):
            copy = _ORIGINAL_TO(tensor, dtype=dtype or tensor.dtype, copy=True)
        self._put(copy, device)
        return copy

    def _patch_tensor(self, exits: contextlib.ExitStack) -> None:
        gpu = self
        cls = torch.Tensor

        def patch(name: str, make: Callable[[Any], Any]) -> None:
            if hasattr(cls, name):
                _patch(exits, cls, name, make(getattr(cls, name)))

        def device(self: torch.Tensor) -> torch.device:
            place = gpu._known(self)
            return place if place.type == "cuda" else _DEVICE.__get__(self)

        patch("device", lambda _: property(device))
        patch("is_cuda", lambda _: property(gpu.is_here))
        patch("is_cpu", lambda old: property(lambda t: old.__get__(t) and not gpu.is_here(t)))
        patch(
            "get_device",
            lambda old: lambda self: gpu._known(self).index if gpu.is_here(self) else old(self),
        )

        def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            copy = kwargs.pop("copy", False)
            other = kwargs.pop("other", None)
            if args and isinstance(args[0], torch.Tensor):
                other, args = args[0], args[1:]
            if other is not None:
                target, dtype, rest = gpu._known(other), other.dtype, args
                if not target.type == gpu._known(self).type == "cuda" or not gpu.is_here(self):
                    target = gpu._known(other)
                memory_format = kwargs.get("memory_format")
                if len(rest) > 1:
                    copy = rest[1]
            else:
                # `to(device, dtype, non_blocking, copy)` and `to(dtype, non_blocking, copy)`
                limit = 2 if args and isinstance(args[0], torch.dtype) else 3
                if len(args) > limit:
                    copy, args = args[limit], args[:limit]
                if args and isinstance(args[0], int) and not isinstance(args[0], bool):
                    args = (torch.device("cuda", args[0]), *args[1:])
                if isinstance(kwargs.get("device"), int):
                    kwargs["device"] = torch.device("cuda", kwargs["device"])
                wanted, dtype, _, memory_format = torch._C._nn._parse_to(*args, **kwargs)
                target = gpu._known(self) if wanted is None else gpu._resolve(wanted)
            if target.type not in ("cpu", "cuda"):
                return _ORIGINAL_TO(self, target, dtype or self.dtype)
            if target == gpu._known(self):
                more = {} if memory_format is None else {"memory_format": memory_format}
                return _ORIGINAL_TO(self, dtype=dtype or self.dtype, copy=copy, **more)
            return gpu.move(self, target, dtype)

        patch("to", lambda _: to)
        patch("cpu", lambda _: lambda self, *args, **kwargs: to(self, _CPU))

        def cuda(self: torch.Tensor, device: Any = None, *_: Any, **__: Any) -> torch.Tensor:
            return to(self, gpu._resolve("cuda" if device is None else device))

        patch("cuda", lambda _: cuda)
        patch("type_as", lambda _: lambda self, other: to(self, other))

        def type_(old: Any) -> Any:
            def wrapper(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
                if isinstance(dtype, str) and gpu.is_here(self) != (".cuda." in dtype):
                    self = to(self, "cuda" if ".cuda." in dtype else "cpu")
                if isinstance(dtype, str):
                    dtype = dtype.replace(".cuda.", ".")
                if dtype is None and gpu.is_here(self):
                    return old(self).replace("torch.", "torch.cuda.", 1)
                return old(self) if dtype is None else old(self, dtype, *args, **kwargs)

            return wrapper

        patch("type", type_)

        def refuse(old: Any) -> Any:
            @functools.wraps(old)
            def wrapper(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
                if gpu.is_here(self):
                    if not kwargs.get("force"):
                        raise TypeError(
                            f"can't convert {gpu._known(self)} device type tensor to numpy. Use "
                            "Tensor.cpu() to copy the tensor to host memory first."
                        )
                    gpu._happened("sync", "numpy")
                return old(self, *args, **kwargs)

            return wrapper

        patch("numpy", refuse)
        patch("__array__", refuse)
        patch("__dlpack__", refuse)

        def tolist(old: Any) -> Any:
            def wrapper(self: torch.Tensor) -> Any:
                if gpu.is_here(self):
                    gpu._happened("sync", "tolist")
                with gpu._with(paused=True):
                    return old(self)

            return wrapper

        patch("tolist", tolist)

        def pin_memory(old: Any) -> Any:
            def wrapper(self: torch.Tensor, *_: Any, **__: Any) -> Any:
                if gpu.is_here(self):
                    raise RuntimeError("cannot pin a tensor of the GPU, only those of the CPU")
                return self.clone()

            return wrapper

        patch("pin_memory", pin_memory)

        def deepcopy(old: Any) -> Any:
            def wrapper(self: torch.Tensor, memo: Any) -> Any:
                if not gpu.is_here(self) or type(self) is not torch.Tensor or id(self) in memo:
                    return old(self, memo)
                with gpu._with(paused=True):
                    copy = old(self, memo)
                gpu._put(copy, gpu._known(self))
                gpu._happened("launch", "deepcopy")
                return copy

            return wrapper

        patch("__deepcopy__", deepcopy)
        for name in _NEW_FACTORIES:
            patch(name, lambda old: self._factory(old, like=True))
        patch("new_tensor", lambda old: self._from_data(old, like=True))

    # Functions of torch

    def _patch_generators(self, exits: contextlib.ExitStack) -> None:
        """
        Before torch 2, no dispatch mode can see an operator with a generator.
        """
        for owner in (torch, torch.Tensor):
            for name in _RANDOM:
                if hasattr(owner, name):
                    _patch(exits, owner, name, self._with_generator(getattr(owner, name)))

    def _with_generator(self, old: Any) -> Any:
        @functools.wraps(old)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("generator") is None:
                return old(*args, **kwargs)
            device = kwargs.pop("device", None)
            target = self._known(args[0]) if isinstance(args[0], torch.Tensor) else _CPU
            target = target if device is None else self._resolve(device)
            mode = torch._C._get_torch_dispatch_mode()  # type: ignore[attr-defined]
            torch._C._set_torch_dispatch_mode(None)  # type: ignore[attr-defined]
            try:
                result = old(*args, **kwargs)
            finally:
                torch._C._set_torch_dispatch_mode(mode)  # type: ignore[attr-defined]
            self._put(result, target)
            if target.type == "cuda":
                self._happened("launch", old.__name__)
            return result

        return wrapper

    def _factory(self, old: Any, like: bool) -> Any:
        @functools.wraps(old)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            device = kwargs.get("device")
            if device is not None:
                target = self._resolve(device)
                kwargs["device"] = _CPU if target.type == "cuda" else target
            elif like:
                target = self._known(args[0] if args else kwargs["input"])
            else:
                parts = [each for each in args if isinstance(each, torch.Tensor)]
                is_sparse = old.__name__.startswith("sparse_") and len(parts) > 1
                target = self._known(parts[1]) if is_sparse else self._default_device()
                if target.type == "cuda":
                    kwargs["device"] = _CPU
            kwargs.pop("pin_memory", None)
            if target.type not in ("cpu", "cuda"):
                return old(*args, **kwargs)
            if old.__name__ == "sparse_coo_tensor" and target.type == "cuda":
                self._check_sparse(args, kwargs)
            with self._with(making_on=target):
                return old(*args, **kwargs)

        return wrapper

    def _check_sparse(self, args: Any, kwargs: Dict[str, Any]) -> None:
        # Before torch 2, CUDA copied the smallest and the largest index to look at them.
        if _OLD_TORCH or kwargs.get("check_invariants"):
            for _ in range(2):
                self._happened("sync", "sparse_coo_tensor")

    def _from_data(self, old: Any, like: bool = False, keeps: bool = False) -> Any:
        """
        For functions that make a tensor of Python's numbers, of numpy's or of another tensor.
        """

        @functools.wraps(old)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            device = kwargs.get("device")
            source = args[1 if like else 0] if len(args) > like else kwargs.get("data")
            if device is None and keeps and len(args) > 2:
                args, device = args[:2], args[2]
            if device is not None:
                target = self._resolve(device)
            elif like:
                target = self._known(args[0])
            elif keeps and isinstance(source, torch.Tensor):
                target = self._known(source)
            elif isinstance(source, torch.Tensor):
                target = self._known(source)  # `torch.tensor` of a tensor stays on its device
            else:
                target = self._default_device()
            kwargs.pop("pin_memory", None)
            if target.type not in ("cpu", "cuda"):
                return old(*args, **kwargs)
            if isinstance(source, torch.Tensor):
                dtype = kwargs.get("dtype") or (args[1] if keeps and len(args) > 1 else None)
                if keeps and not kwargs.get("copy"):
                    return source.to(target, dtype or source.dtype)
                copy = source.detach().to(target, dtype or source.dtype, copy=True)
                return copy.requires_grad_(kwargs.get("requires_grad", False))
            kwargs["device"] = _CPU
            with self._with(making_on=_CPU):
                result = old(*args, **kwargs)
            if target.type == "cuda":
                if keeps:  # it may share its memory with numpy
                    return self.move(result, target, operator=old.__name__)
                self._happened("host_to_device", old.__name__)
                self._put(result, target)
            return result

        return wrapper

    def _patch_factories(self, exits: contextlib.ExitStack) -> None:
        for name in _FACTORIES:
            if hasattr(torch, name):
                _patch(exits, torch, name, self._factory(getattr(torch, name), like=False))
        for name in _LIKE_FACTORIES:
            _patch(exits, torch, name, self._factory(getattr(torch, name), like=True))
        _patch(exits, torch, "tensor", self._from_data(torch.tensor))
        for name in ("as_tensor", "asarray"):
            if hasattr(torch, name):
                _patch(exits, torch, name, self._from_data(getattr(torch, name), keeps=True))

    # The rest of torch

    def _current_device(self) -> int:
        return getattr(self._local, "device", 0)

    def _set_device(self, device: Any) -> None:
        self._local.device = self._resolve(device).index

    def _patch_cuda(self, exits: contextlib.ExitStack) -> None:
        gpu = self

        class Device:
            """`torch.cuda.device`: a context in which another GPU is the current one."""

            def __init__(self, device: Any) -> None:
                if isinstance(device, torch.Tensor):
                    device = device.device
                is_none = device is None or device == -1
                self.index = None if is_none else gpu._resolve(device).index

            def __enter__(self) -> None:
                self.before = gpu._current_device()
                if self.index is not None:
                    gpu._local.device = self.index

            def __exit__(self, *_: Any) -> None:
                gpu._local.device = self.before

        class Stream:
            """`torch.cuda.Stream` and `torch.cuda.Event`: there is nothing to wait for."""

            cuda_stream = 0

            def __init__(self, *_: Any, **__: Any) -> None:
                self.device = torch.device("cuda", gpu._current_device())

            def __enter__(self) -> "Stream":
                return self

            def __exit__(self, *_: Any) -> None:
                pass

            def synchronize(self) -> None:
                gpu._happened("sync", "synchronize")

            def query(self) -> bool:
                return True

            def is_capturing(self) -> bool:
                return getattr(gpu._local, "capturing", False)

            def wait_stream(self, *_: Any) -> None:
                pass

            wait_event = record = record_event = wait = wait_stream

            def elapsed_time(self, _: Any) -> float:
                return 0.0

        def nothing(*_: Any, **__: Any) -> None:
            pass

        properties = types.SimpleNamespace(
            name="Pretend GPU", major=8, minor=0, total_memory=2**34, multi_processor_count=1
        )
        replacements: Dict[str, Any] = {
            "_lazy_init": nothing,
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "device_count": lambda: self.device_count,
            "current_device": self._current_device,
            "set_device": self._set_device,
            "device": Device,
            "device_of": Device,
            "synchronize": lambda *_: self._happened("sync", "synchronize"),
            "CUDAGraph": functools.partial(_Graph, self),
            "graph_pool_handle": lambda: (0, 0),
            "Stream": Stream,
            "Event": Stream,
            "current_stream": Stream,
            "default_stream": Stream,
            "stream": lambda stream: stream or Stream(),
            "set_stream": nothing,
            "is_current_stream_capturing": lambda: getattr(self._local, "capturing", False),
            "get_device_name": lambda *_: properties.name,
            "get_device_capability": lambda *_: (properties.major, properties.minor),
            "get_device_properties": lambda *_: properties,
            "is_bf16_supported": lambda *_: True,
            "mem_get_info": lambda *_: (2**33, 2**34),
            "get_rng_state": lambda *_: torch.get_rng_state(),
            "get_rng_state_all": lambda: [torch.get_rng_state()] * self.device_count,
            "set_rng_state": nothing,
            "set_rng_state_all": nothing,
        }
        for name in (
            "empty_cache manual_seed manual_seed_all seed seed_all reset_peak_memory_stats "
            "reset_max_memory_allocated reset_max_memory_cached ipc_collect"
        ).split():
            replacements[name] = nothing
        for name in (
            "memory_allocated memory_reserved max_memory_allocated max_memory_reserved "
            "memory_cached max_memory_cached"
        ).split():
            replacements[name] = lambda *_: 0
        for name, value in replacements.items():
            if hasattr(torch.cuda, name):
                _patch(exits, torch.cuda, name, value)
        accelerator = getattr(torch, "accelerator", None)
        for name, value in {
            "current_device_index": self._current_device,
            "current_device_idx": self._current_device,
            "set_device_index": self._set_device,
            "set_device_idx": self._set_device,
            "current_stream": Stream,
            "set_stream": nothing,
            "synchronize": replacements["synchronize"],
            "empty_cache": nothing,
        }.items():
            if hasattr(accelerator, name):
                _patch(exits, accelerator, name, value)
        _patch(exits, torch.backends.cudnn, "is_acceptable", lambda _: False)

    def _patch_storages(self, exits: contextlib.ExitStack) -> None:
        """
        `torch.save` notes the device of each storage, and `torch.load` puts them there.
        """
        gpu = self
        registry: Any = torch.serialization._package_registry

        def tag(storage: Any) -> Optional[str]:
            place = self._places.get(_untyped(storage)._cdata, (None, _CPU))[1]
            if place is None or place.type == "cpu":
                return None
            self._happened("sync", "save")
            return str(place)

        def restore(storage: Any, location: str) -> Any:
            if not location.startswith("cuda"):
                return None
            untyped = _untyped(storage)
            self._happened("host_to_device", "load")
            self._put_storage(untyped._cdata, untyped, self._resolve(location))
            return storage

        entry = (-1, tag, restore)
        registry.insert(0, entry)
        exits.callback(registry.remove, entry)

        def cuda(self: Any, device: Any = None, *_: Any, **__: Any) -> Any:
            copy = self.clone()
            restore(copy, str(gpu._resolve("cuda" if device is None else device)))
            return copy

        for name in ("UntypedStorage", "TypedStorage", "_UntypedStorage", "_TypedStorage"):
            cls = getattr(torch, name, None) or getattr(torch.storage, name, None)
            if cls is not None:
                _patch(exits, cls, "cuda", cuda)

    def _patch_threads(self, exits: contextlib.ExitStack) -> None:
        """
        A dispatch mode is a thread's own: new threads get one too.
        """
        original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

        def bootstrap(thread: threading.Thread) -> None:
            with self._mode():
                original(thread)

        _patch(exits, threading.Thread, "_bootstrap_inner", bootstrap)


class RealGpu:
    """
    A GPU that is there, for the same tests. Counts skip the test that asks for them.
    """

    is_real = True
    device = torch.device("cuda", 0)

    def __init__(self) -> None:
        self.device_count = torch.cuda.device_count()

    def __enter__(self) -> "RealGpu":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    @contextlib.contextmanager
    def count(self) -> Iterator[Counts]:
        yield _NoCounts()

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)

    def is_here(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cuda

    def n_allocations(self, index: int) -> int:
        return torch.cuda.memory_stats(index).get("allocation.all.allocated", 0)

    out_of_memory = PretendGpu.out_of_memory


class _NoCounts(Counts):
    def _count(self, kind: str) -> int:
        pytest.skip(f"a real GPU does not count ({kind})")

    def report(self) -> str:
        return "a real GPU does not count"


def gpu_for_tests(device_count: int = 1) -> Any:
    """
    Return the machine's GPU, or a pretend one where there is none.
    """
    if torch.cuda.is_available() and torch.cuda.device_count() >= device_count:
        return RealGpu()
    return PretendGpu(device_count)


class _Input(NamedTuple):
    name: str
    written: bool
    tensor: torch.Tensor
    place: Optional[torch.device]
    storages: Dict[int, Any]
    """See `PretendGpu._storages`."""


class _Information(NamedTuple):
    """
    An operator's name, without the `_` of one that works in place, and its arguments.
    """

    name: str
    arguments: List[Tuple[str, bool]]
    written: Dict[str, bool]
    writes: bool


@functools.lru_cache(None)
def _information(operator: Any) -> _Information:
    name = operator._schema.name.split("::")[1]
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    # Such as `(Tensor(a!) self, Tensor other) -> Tensor(a!)`
    signature = str(operator._schema).rsplit("->", 1)[0]
    arguments = [
        (each.name, bool(re.search(rf"!\)\S* {each.name}\b", signature)))
        for each in operator._schema.arguments
    ]
    written = dict(arguments)
    no_tensor = not any("Tensor" in str(each.type) for each in operator._schema.returns)
    return _Information(name, arguments, written, any(written.values()) or no_tensor)


class _Mode(_python_dispatch.TorchDispatchMode):
    def __init__(self, gpu: PretendGpu) -> None:
        super().__init__(**({"inner": None} if _OLD_TORCH else {}))
        self.gpu = gpu

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.gpu.dispatch(func, args, kwargs or {})


class _Graph:
    """
    A CUDA graph; see the module's docstring.
    """

    def __init__(self, gpu: PretendGpu) -> None:
        self.gpu = gpu
        # Operators, their arguments, and the tensors that they make.
        self.noted: List[Tuple[Any, Any, Any, List[torch.Tensor]]] = []

    def capture_begin(self, pool: Any = None, **kwargs: Any) -> None:
        if _OLD_TORCH and kwargs:
            raise TypeError("capture_begin() got an unexpected keyword argument")
        vars(self.gpu._local).update(capturing=True, graph=self)

    def capture_end(self) -> None:
        vars(self.gpu._local).update(capturing=False, graph=None)

    def note(self, operator: Any, args: Any, kwargs: Any, inputs: "List[_Input]") -> Any:
        """
        Return what an operator would, without values, and write nothing.
        """
        with self.gpu._with(paused=True), torch.no_grad():
            written = [each.tensor for each in inputs if each.written]
            before = [tensor.clone() for tensor in written]
            outputs = operator(*args, **kwargs)
            for tensor, values in zip(written, before):
                tensor.copy_(values)
            known = {address for each in inputs for address in each.storages}
            made = [each for each in _tensors(outputs) if not known & set(self.gpu._storages(each))]
            for tensor in made:
                tensor.fill_(math.nan if tensor.is_floating_point() else 0)
        if made or written:
            self.noted.append((operator, args, kwargs, made))
        return outputs

    def replay(self) -> None:
        self.gpu._happened("launch", "replay")
        with self.gpu._with(paused=True), torch.no_grad():
            for operator, args, kwargs, made in self.noted:
                outputs = operator(*args, **kwargs)
                for tensor, values in zip(made, _tensors(outputs) if made else ()):
                    tensor.copy_(values)


class _Move(torch.autograd.Function):
    """
    A copy to another device, whose gradient is copied back.
    """

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        gpu: PretendGpu,
        source: torch.device,
        target: torch.device,
        dtype: Optional[torch.dtype],
    ) -> torch.Tensor:
        ctx.gpu, ctx.source, ctx.dtype = gpu, source, tensor.dtype
        return gpu.copy_to(tensor, target, dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        if ctx.gpu._known(grad) != ctx.source:
            grad = ctx.gpu.move(grad, ctx.source, ctx.dtype, "ToCopyBackward")
        return grad, None, None, None, None


_ORIGINAL_TO: Any = torch.Tensor.to
_DEVICE: Any = torch.Tensor.device


def _patch(exits: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """
    Replace an attribute until `exits` is closed.
    """
    if name in vars(owner):
        exits.callback(setattr, owner, name, vars(owner)[name])
    else:
        exits.callback(delattr, owner, name)
    setattr(owner, name, value)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _untyped(storage: Any) -> Any:
    for name in ("_untyped_storage", "_storage"):
        storage = getattr(storage, name, storage)
    return storage


def _where() -> str:
    """
    The innermost line that is neither torch's nor the pretence's.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path != __file__ and "/torch/" not in path and "contextlib" not in path:
            return "/".join(path.split("/")[-2:]) + f":{frame.f_lineno}"
        frame = frame.f_back
    return ""
