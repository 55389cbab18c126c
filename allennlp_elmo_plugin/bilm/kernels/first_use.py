"""
The comparison of the kernels in Triton with torch's operators when a process first uses a GPU.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import collect_env

from allennlp_elmo_plugin.bilm.kernels import ngrams, recurrence
from allennlp_elmo_plugin.bilm.kernels.recurrence import LstmWeights
from allennlp_elmo_plugin.bilm.model_call import without_autocast
from allennlp_elmo_plugin.bilm.packing import PackedBatch

_TOLERANCE = 1e-4
# The first step needs the largest blocks of rows, the others the smallest.
_LENGTHS = [3, 2] + [1] * 63
_DIM, _OUT, _CLIPS = 12, 6, (0.6, 0.3)
_FILTERS = (1, 3), (2, 4), (3, 5)


def has_right_kernels(device: torch.device) -> bool:
    """Return whether a small layer and a small encoder give right numbers. If not, warn."""
    triton_version = None
    try:
        import triton

        from allennlp_elmo_plugin.bilm.kernels import triton_ngrams, triton_recurrence

        triton_version = triton.__version__
        found = _results(triton_recurrence, triton_ngrams, device)
        differences = zip(found, _results(recurrence, ngrams, device))
        worst = max(float((a - b).abs().max().nan_to_num(torch.inf)) for a, b in differences)
        if worst <= _TOLERANCE:
            return True
        fault = f"a number differs by {worst:.1g}"
    except Exception as error:
        fault = repr(error)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    driver = collect_env.get_nvidia_driver_version(collect_env.run)
    warnings.warn(
        f"kernels for GPUs fail here, so slower operators of torch are used: {fault} "
        f"(torch {torch.__version__}, Triton {triton_version}, {name}, driver {driver}). "
        "ELMO_KERNELS=0 chooses those without this test"
    )
    return False


def _results(lstm: ModuleType, cnn: ModuleType, device: torch.device) -> list[torch.Tensor]:
    """Return what two modules compute, in whatever mode of torch the first call is."""

    def numbers(seed: int, *shape: int) -> torch.Tensor:
        values = torch.arange(torch.Size(shape).numel(), device="cpu", dtype=torch.float32)
        return (1.7 * values + seed).sin().view(shape).to(device).requires_grad_()

    keep = saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with torch.inference_mode(False), torch.enable_grad(), without_autocast(), keep, _exact():
        packing = PackedBatch(_LENGTHS, max(_LENGTHS), device)
        n_rows, n = len(_LENGTHS), packing.n_tokens
        state = numbers(1, 2, n_rows, _OUT).detach(), numbers(2, 2, n_rows, _DIM).detach()
        shapes = (n, _OUT), (4 * _DIM, _OUT), (4 * _DIM, _OUT), (4 * _DIM,), (_OUT, _DIM)
        tensors = [numbers(3 + i, 2, *shape) for i, shape in enumerate(shapes)]
        inputs, *weights = tensors
        layers = [LstmWeights(of_layer, _CLIPS) for of_layer in zip(*weights)]
        with torch.no_grad():
            outputs, cells = lstm.run(layers, [*inputs], packing, state, False)
        results = [*outputs, cells]
        outputs, cells = lstm.run(layers, [*inputs], packing, state, True)
        grads = [*numbers(8, 2, n, _OUT).detach()]
        results += [*outputs, cells, *torch.autograd.grad([*outputs], tensors, grads)]

        tensors = [numbers(9, 20, 4), numbers(10, 12)]
        tensors += [numbers(11, number, 4, width) for width, number in _FILTERS]
        embeddings, bias, *weights = tensors
        ids = (numbers(12, 5, 9).detach() * 9 + 10).to(torch.int16)
        tables = cnn.make_tables(embeddings, weights)
        vectors, order = cnn.max_over_ngrams(ids, tables, bias, _FILTERS, "relu", 0)
        vectors = vectors if order is None else vectors[order.argsort()]
        results += [vectors, *torch.autograd.grad(vectors.sum(), tensors)]
    return [result.detach() for result in results]


@contextmanager
def _exact() -> Iterator[None]:
    """Don't let torch multiply in TF32, whose products differ by 1e-3."""
    matmul = torch.backends.cuda.matmul
    is_new = hasattr(matmul, "fp32_precision")  # from torch 2.9 on
    name, exact = ("fp32_precision", "ieee") if is_new else ("allow_tf32", False)
    before = getattr(matmul, name)
    setattr(matmul, name, exact)
    try:
        yield
    finally:
        setattr(matmul, name, before)
