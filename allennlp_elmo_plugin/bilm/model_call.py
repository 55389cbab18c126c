"""
What calls of the model and their gradients share: modes of torch, copies to a GPU, and the check
for hooks.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn, TypeVar, cast

import torch
from torch.autograd import function as autograd_function

Function = TypeVar("Function", bound=Callable[..., Any])

# torch 2.6 lacks `is_exporting`; its `is_compiling` is also true for `torch.compile`.
_is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# For the first batch of a run, AllenNLP's trainer hooks every module to look for normalization
# layers, which the language model doesn't have.
_IGNORED_HOOKS = "allennlp.confidence_checks"


def model_call(function: Function) -> Function:
    """Make a method of the model run uncompiled and without `torch.autocast`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return torch._dynamo.disable(call)(*args, **kwargs)
        if torch.jit.is_tracing() or _is_exporting():
            refuse_graphs()
        with without_autocast():
            return function(*args, **kwargs)

    return cast(Function, call)


def refuse_graphs() -> NoReturn:
    raise RuntimeError(
        "the language model of ELMo can't be traced or exported (torch.jit, torch.onnx, "
        "torch.export): its steps depend on the words of each batch. Use the module itself, or "
        "torch.compile; `elmo-export MODEL NAME.onnx` writes an ONNX file"
    )


@contextmanager
def without_autocast() -> Iterator[None]:
    with ExitStack() as stack:
        for device_type in filter(torch.is_autocast_enabled, ("cpu", "cuda", "mps", "xpu")):
            stack.enter_context(torch.autocast(device_type, enabled=False))
        yield


def backward_once(backward: Callable[..., Any]) -> Any:
    """Make a backward pass that runs without autocast and refuses a second derivative."""
    differentiable_once = autograd_function.once_differentiable(backward)

    @functools.wraps(backward)
    def call(ctx: Any, *grads: torch.Tensor) -> Any:
        # With `create_graph`, torch raises its error only if an input requires a gradient.
        if torch.is_grad_enabled():
            grads = tuple(grad.detach().requires_grad_() for grad in grads)
        with without_autocast():
            return differentiable_once(ctx, *grads)

    return staticmethod(call)


def may_overwrite_saved() -> bool:
    """Return whether the running backward pass frees what the forward pass saved."""
    return not torch._C._autograd._get_current_graph_task_keep_graph()


@contextmanager
def lasting_tensors() -> Iterator[None]:
    """Make tensors that outlive the call: without a gradient, and usable outside inference mode."""
    with torch.inference_mode(False), torch.no_grad():
        yield


def copy_to(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor of the CPU on a device, without waiting for what a GPU still computes."""
    if device.type != "cuda":
        return tensor.to(device)
    # torch keeps the pinned memory until it has been copied.
    return tensor.pin_memory().to(device, non_blocking=True)


def needs_grad(*tensors: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def is_plain(module: torch.nn.Module, *kinds: type[torch.nn.Module]) -> bool:
    """Return whether a module is exactly of a kind, with no hook and no replaced `forward`."""
    if type(module) not in kinds or "forward" in vars(module):
        return False
    hooks = [hook for name in _HOOKS for hook in getattr(module, name).values()]
    return all(_IGNORED_HOOKS in str(getattr(hook, "__module__", "")) for hook in hooks)


def check_layers(module: torch.nn.Module, *kinds: type[torch.nn.Module]) -> None:
    """Raise a `ValueError` if a module below, whose call the model bypasses, isn't plain."""
    for name, layer in module._modules.items():
        if layer is None:
            continue
        if not is_plain(layer, *kinds):
            raise ValueError(
                f"the layer {name} of {type(module).__name__} was replaced or has a hook, which "
                "the language model would ignore. Restore it, and put hooks on Elmo, its language "
                'model or the token embedder. Instead of quantize_dynamic, use precision="int8"'
            )
        check_layers(layer, *kinds)
