"""
Calls of a function of torch's graph that run side by side in both passes. torch itself runs the
backward pass of whatever is on the CPU in one thread.
"""

import copy
import functools
from typing import Any, Callable, Iterable, List, Sequence, Tuple, Type

import torch

from allennlp_elmo_plugin.bilm.kernels.gradients import once_differentiable
from allennlp_elmo_plugin.bilm.kernels.side_by_side import may_run_side_by_side, run_side_by_side

_Function = Type[torch.autograd.Function]


def apply_side_by_side(
    calls: Sequence[Tuple[_Function, Sequence[Any]]],
) -> List[Tuple[torch.Tensor, ...]]:
    """
    Return `function.apply(*arguments)` of each call.

    The calls are one node of torch's graph. A backward pass through one output frees what all of
    them saved, unless it is given `retain_graph`, and hooks on the other calls' arguments get None.

    # Parameters

    calls : `Sequence[Tuple[Type[torch.autograd.Function], Sequence[Any]]]`
        Functions with their arguments, in the same number, of which the first is a tensor. Of the
        outputs, in the same number, the first alone has a gradient. The `ctx` of a function has
        `save_for_backward`, of the same number of tensors, the first not None, `saved_tensors`,
        `mark_non_differentiable`, `needs_input_grad` and attributes.
    """
    functions = [function for function, _ in calls]
    flat = _joined(arguments for _, arguments in calls)
    return _split(_SideBySide.apply(functions, *flat), len(calls))


class _Context:
    """
    The `ctx` of a call.
    """

    def __init__(self, needs_input_grad: Tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: Tuple[Any, ...] = ()
        self.non_differentiable: Tuple[torch.Tensor, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None:
        self.non_differentiable = tensors


class _SideBySide(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, functions: List[Any], *arguments: Any) -> Tuple[Any, ...]:
        n_calls = len(functions)
        contexts = [_Context(needs) for needs in _split(ctx.needs_input_grad[1:], n_calls)]
        calls = [
            functools.partial(function.forward, context, *each)
            for function, context, each in zip(functions, contexts, _split(arguments, n_calls))
        ]
        results = _run(calls, arguments[0].device)
        ctx.save_for_backward(*_joined(context.saved_tensors for context in contexts))
        ctx.mark_non_differentiable(*_joined(context.non_differentiable for context in contexts))
        for context in contexts:
            # `ctx` alone holds them, so that torch can free and check them.
            context.saved_tensors = context.non_differentiable = ()
        ctx.set_materialize_grads(False)
        ctx.functions, ctx.contexts = functions, contexts
        return tuple(_joined(results))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        n_calls = len(ctx.contexts)
        saved = _split(ctx.saved_tensors, n_calls)
        calls = {}
        for i, its_grads in enumerate(_split(grads, n_calls)):
            if its_grads[0] is not None:
                context = copy.copy(ctx.contexts[i])
                context.saved_tensors = saved[i]
                calls[i] = functools.partial(ctx.functions[i].backward, context, *its_grads)
        results = dict(zip(calls, _run(list(calls.values()), saved[0][0].device)))
        nothing = (None,) * len(ctx.contexts[0].needs_input_grad)
        return None, *_joined(results.get(i, nothing) for i in range(n_calls))


def _run(calls: Sequence[Callable[[], Any]], device: torch.device) -> List[Any]:
    if len(calls) > 1 and may_run_side_by_side(device):
        return run_side_by_side(calls)
    return [call() for call in calls]


def _split(items: Sequence[Any], n_parts: int) -> List[Tuple[Any, ...]]:
    size = len(items) // n_parts
    return [tuple(items[i * size : (i + 1) * size]) for i in range(n_parts)]


def _joined(parts: Iterable[Sequence[Any]]) -> List[Any]:
    return [item for part in parts for item in part]
