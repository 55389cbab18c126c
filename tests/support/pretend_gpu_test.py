import copy
import io
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict

import numpy
import pytest
import torch
from allennlp.common.checks import check_for_gpu
from allennlp.common.util import int_to_device
from allennlp.nn.util import device_mapping, move_to_device

from tests.support.pretend_gpu import PretendGpu, gpu_for_tests

GPU = torch.device("cuda", 0)


def _gpu(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device="cuda:0")


def test_tensors_say_where_they_are(pretend_gpu: Any) -> None:
    on_cpu = torch.ones(2, 3)
    assert on_cpu.device == torch.device("cpu") and not on_cpu.is_cuda
    for tensor in (
        on_cpu.to("cuda"),
        on_cpu.to(GPU),
        on_cpu.to("cuda:0", torch.float64),
        on_cpu.to(device="cuda:0", non_blocking=True),
        on_cpu.to(_gpu(1)),
        on_cpu.cuda(),
        on_cpu.cuda(0),
        on_cpu.type_as(_gpu(1)),
        torch.tensor([1, 2], device="cuda"),
        torch.tensor(1.5, device=GPU),
        torch.as_tensor([1, 2], device=GPU),
        torch.as_tensor(numpy.zeros(3), device=GPU),
        torch.as_tensor(on_cpu, device=GPU),
        torch.zeros(2, device=GPU),
        torch.empty(2, device="cuda"),
        torch.arange(3, device=GPU),
        torch.full((2,), 1.0, device=GPU),
        torch.randn(2, device=GPU),
        torch.zeros_like(on_cpu, device=GPU),
        torch.zeros_like(_gpu(2)),
        _gpu(2).new_zeros(3),
        _gpu(2).new_empty(3),
        _gpu(2).new_tensor([1.0]),
        _gpu(2).new_full((1,), 2.0),
        _gpu(2) + 1,
        1 - _gpu(2),
        _gpu(2, 3) @ _gpu(3, 2),
        _gpu(2, 3)[0],
        _gpu(2, 3).t(),
        _gpu(2, 3).split(1)[1],
        _gpu(2, 3).sum(),
        _gpu(2, 3).detach(),
        _gpu(2, 3).max(1)[1],
        torch.nn.functional.pad(_gpu(2, 3), (1, 1)),
        torch.nn.functional.one_hot(torch.zeros(3, dtype=torch.long, device=GPU), 4),
        torch.nn.functional.dropout(_gpu(2, 3), 0.5),
        torch.sparse_coo_tensor(torch.zeros(1, 2, dtype=torch.long, device=GPU), _gpu(2), (3,)),
        torch.sparse_coo_tensor(
            torch.zeros(1, 2, dtype=torch.long, device=GPU), _gpu(2, 2), (3, 2)
        ).coalesce(),
        copy.deepcopy(_gpu(2)),
        copy.deepcopy(torch.nn.Parameter(_gpu(2))),
    ):
        assert tensor.device == GPU and tensor.is_cuda and tensor.get_device() == 0
    for tensor in (
        _gpu(2).cpu(),
        _gpu(2).to("cpu"),
        _gpu(2).to(torch.device("cpu"), torch.float64),
        _gpu(2).to(on_cpu),
        _gpu(2).new_zeros(3, device="cpu"),
        torch.zeros_like(_gpu(2), device="cpu"),
        torch.as_tensor(_gpu(2), device="cpu"),
        torch.from_numpy(numpy.zeros(3)),
        copy.deepcopy(on_cpu),
    ):
        assert tensor.device == torch.device("cpu") and not tensor.is_cuda


def test_moving_keeps_values_types_and_identity(pretend_gpu: Any) -> None:
    values = torch.arange(6).view(2, 3)
    moved = values.to("cuda:0")
    values[0, 0] = 9  # memory is not shared
    assert moved.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert moved.to("cuda:0") is moved and moved.to(GPU, torch.long) is moved
    assert moved.to(GPU, torch.long, copy=True) is not moved
    assert values.to("cpu") is values and values.cpu() is values
    assert moved.to(torch.float32).dtype == torch.float32 and moved.float().is_cuda
    assert moved.to("cpu", torch.float64).dtype == torch.float64


_REFUSED: Dict[str, Callable[[], Any]] = {
    "add": lambda: _gpu(2) + torch.ones(2),
    "add one": lambda: _gpu(2) + torch.ones(1),
    "in place": lambda: _gpu(2).add_(torch.ones(2)),
    "in place on the CPU": lambda: torch.ones(2).add_(_gpu(2)),
    "in place on the CPU's number": lambda: torch.ones(()).add_(_gpu(1)[0]),
    "matmul": lambda: _gpu(2, 2) @ torch.ones(2, 2),
    "addmm": lambda: torch.addmm(torch.ones(2), _gpu(2, 2), _gpu(2, 2)),
    "cat": lambda: torch.cat([_gpu(2), torch.ones(2)]),
    "stack of numbers": lambda: torch.stack([_gpu(1)[0], torch.tensor(1.0)]),
    "index_select": lambda: _gpu(2, 2).index_select(0, torch.tensor([0])),
    "index_select from the CPU": lambda: torch.ones(2).index_select(
        0, torch.zeros(1, dtype=torch.long, device=GPU)
    ),
    "gather": lambda: _gpu(2, 2).gather(0, torch.zeros(1, 2, dtype=torch.long)),
    "scatter": lambda: _gpu(2, 2).scatter(0, torch.zeros(1, 2, dtype=torch.long), 1.0),
    "scatter_add": lambda: _gpu(2, 2).scatter_add(
        0, torch.zeros(1, 2, dtype=torch.long), _gpu(1, 2)
    ),
    "index_copy": lambda: _gpu(2, 2).index_copy_(0, torch.tensor([0]), _gpu(1, 2)),
    "index_add": lambda: _gpu(2, 2).index_add_(0, torch.tensor([0]), _gpu(1, 2)),
    "index of the GPU into the CPU": lambda: torch.ones(2)[
        torch.zeros(1, dtype=torch.long, device=GPU)
    ],
    "assignment of several values by index": lambda: _gpu(3).index_put_(
        (torch.zeros(2, dtype=torch.long, device=GPU),), torch.ones(2)
    ),
    "embedding": lambda: torch.nn.functional.embedding(torch.tensor([0]), _gpu(2, 2)),
    "where": lambda: torch.where(torch.ones(2, dtype=torch.bool), _gpu(2), _gpu(2)),
    "masked_fill": lambda: _gpu(2).masked_fill(torch.ones(2, dtype=torch.bool), 0.0),
    "out": lambda: torch.add(_gpu(2), _gpu(2), out=torch.empty(2)),
    "linear": lambda: torch.nn.Linear(2, 2)(_gpu(1, 2)),
    "searchsorted": lambda: torch.searchsorted(_gpu(2), torch.ones(2)),
    "equal": lambda: torch.equal(_gpu(2), torch.ones(2)),
    "numpy": lambda: _gpu(2).numpy(),
    "detached numpy": lambda: _gpu(2).detach().numpy(),
    "asarray": lambda: numpy.asarray(_gpu(2)),
    "array": lambda: numpy.array(_gpu(2)),
    "numpy's functions": lambda: numpy.concatenate([_gpu(2), _gpu(2)]),
    "assignment to numpy": lambda: numpy.zeros(2).__setitem__(slice(None), _gpu(2)),
    "sparse": lambda: (
        torch.sparse_coo_tensor(torch.zeros(1, 2, dtype=torch.long), _gpu(2), (3,)) + torch.ones(3)
    ),
    "a second GPU": lambda: torch.zeros(2, device=f"cuda:{torch.cuda.device_count()}"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_refuses_what_a_gpu_refuses(name: str, pretend_gpu: Any) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        _REFUSED[name]()


def test_takes_what_a_gpu_takes(pretend_gpu: Any) -> None:
    ones = _gpu(2)
    number = torch.tensor(2.0)
    for tensor in (ones + number, number * ones, ones - number, ones / number, ones**number):
        assert tensor.is_cuda
    ones.add_(number).mul_(number)
    ones[0] = 1.0
    ones[1] = number
    ones[:] = torch.zeros(2)  # a copy
    ones.copy_(torch.ones(2))
    ones[torch.tensor([True, False])] = 3.0
    assert ones.tolist() == [3.0, 1.0]
    on_cpu = torch.zeros(2)
    on_cpu.copy_(ones)
    on_cpu[0] = ones[1]
    assert on_cpu.tolist() == [1.0, 1.0] and not on_cpu.is_cuda
    assert (ones > number).tolist() == [True, False]
    assert ones.masked_fill(ones > 2, number).tolist() == [2.0, 1.0]
    assert ones[torch.tensor([1, 0])].tolist() == [1.0, 3.0]
    assert ones[[1, 0]].is_cuda and ones[torch.tensor(1)].item() == 1.0


_SYNCS: Dict[str, Callable[[], Any]] = {
    "item": lambda: _gpu(1).item(),
    "float": lambda: float(_gpu(1)),
    "int": lambda: int(_gpu(1)),
    "bool": lambda: bool(_gpu(1)),
    "if": lambda: 1 if _gpu(1).all() else 0,
    "tolist": lambda: _gpu(3).tolist(),
    "cpu": lambda: _gpu(3).cpu(),
    "to the CPU": lambda: _gpu(3).to("cpu"),
    "copy_ to the CPU": lambda: torch.empty(3).copy_(_gpu(3)),
    "nonzero": lambda: _gpu(3).nonzero(),
    "where": lambda: torch.where(_gpu(3) > 0),
    "masked_select": lambda: _gpu(3).masked_select(_gpu(3) > 0),
    "mask": lambda: _gpu(3)[_gpu(3) > 0],
    "assignment of tensors by mask": lambda: _gpu(3).__setitem__(_gpu(3) > 0, _gpu(3)),
    "unique": lambda: torch.unique(_gpu(3)),
    "unique_consecutive": lambda: torch.unique_consecutive(_gpu(3)),
    "equal": lambda: torch.equal(_gpu(3), _gpu(3)),
    "allclose": lambda: torch.allclose(_gpu(3), _gpu(3)),
    "repeat_interleave": lambda: torch.repeat_interleave(_gpu(3).long()),
    "coalesce": lambda: _sparse().coalesce(),
    "index by a number": lambda: torch.ones(3)[_gpu(1)[0].long()],
    "slice": lambda: torch.ones(3)[: _gpu(1)[0].long()],
    "range": lambda: range(_gpu(1)[0].long()),
    "synchronize": lambda: torch.cuda.synchronize(),
    "format": lambda: f"{_gpu(1)[0]:.3f}",
    "save": lambda: torch.save(_gpu(3), io.BytesIO()),
}


def _sparse() -> torch.Tensor:
    rows = torch.zeros(1, 2, dtype=torch.long, device="cuda:0")
    return torch.sparse_coo_tensor(rows, _gpu(2), (3,))


@pytest.mark.parametrize("name", _SYNCS)
def test_counts_syncs(name: str, pretend_gpu: Any) -> None:
    before = 2 if name == "coalesce" and torch.__version__ < "2" else 0
    with pretend_gpu.count() as counts:
        _SYNCS[name]()
    assert counts.syncs - before == 1, counts.report()
    assert counts.host_to_device == 0
    assert "pretend_gpu_test.py" in counts.report()


_NO_SYNCS: Dict[str, Callable[[], Any]] = {
    "shape": lambda: (_gpu(3).size(0), len(_gpu(3)), _gpu(3).numel(), _gpu(3).device),
    "arithmetic": lambda: (_gpu(3) * 2).sum().sqrt(),
    "masked_fill": lambda: _gpu(3).masked_fill(_gpu(3) > 0, 1.0),
    "where": lambda: torch.where(_gpu(3) > 0, _gpu(3), _gpu(3)),
    "assignment of a number by mask": lambda: _gpu(3).__setitem__(_gpu(3) > 0, 0.0),
    "index": lambda: _gpu(3)[_gpu(3).long() - 1],
    "sort": lambda: _gpu(3).sort(),
    "repeat_interleave": lambda: torch.repeat_interleave(_gpu(3).long(), output_size=3),
    "the CPU's numbers": lambda: (
        torch.ones(1).item(),
        torch.ones(3).tolist(),
        torch.ones(3).numpy(),
    ),
    "the CPU's mask": lambda: torch.ones(3)[torch.ones(3) > 0],
    "iteration": lambda: list(_gpu(3)),
}


@pytest.mark.parametrize("name", _NO_SYNCS)
def test_counts_no_sync(name: str, pretend_gpu: Any) -> None:
    with pretend_gpu.count() as counts, pretend_gpu.capturing():
        _NO_SYNCS[name]()
    assert counts.syncs == 0 and counts.host_to_device == 0, counts.report()


_COPIES: Dict[str, Callable[[], Any]] = {
    "to": lambda: torch.ones(3).to("cuda:0"),
    "to, non-blocking": lambda: torch.ones(3).to("cuda:0", non_blocking=True),
    "cuda": lambda: torch.ones(3).cuda(),
    "tensor": lambda: torch.tensor([1, 2], device="cuda:0"),
    "tensor of a number": lambda: torch.tensor(1, device="cuda:0"),
    "as_tensor": lambda: torch.as_tensor(numpy.ones(3), device="cuda:0"),
    "new_tensor": lambda: _gpu(3).new_tensor([1.0]),
    "copy_": lambda: _gpu(3).copy_(torch.ones(3)),
    "assignment": lambda: _gpu(3).__setitem__(slice(None), torch.ones(3)),
    "index of the CPU": lambda: _gpu(3)[torch.tensor([0, 1])],
    "mask of the CPU": lambda: _gpu(3)[torch.tensor([True, False, True])],
    "list as index": lambda: _gpu(3)[[0, 1]],
    "load_state_dict": lambda: (
        torch.nn.Linear(2, 2, bias=False).to("cuda:0").load_state_dict({"weight": torch.ones(2, 2)})
    ),
}


@pytest.mark.parametrize("name", _COPIES)
def test_counts_copies_to_the_gpu(name: str, pretend_gpu: Any) -> None:
    with pretend_gpu.count() as counts:
        _COPIES[name]()
    of_module = 1 if name == "load_state_dict" else 0
    assert counts.host_to_device - of_module == 1, counts.report()
    assert counts.syncs == 0


_LAUNCHES: Dict[str, Any] = {
    "nothing": (lambda x: x, 0),
    "views": (lambda x: (x.t(), x[0], x.view(-1), x.split(1), x.detach(), x.expand(5, 2, 2)), 0),
    "no copy": (lambda x: (x.contiguous(), x.to("cuda:0"), x.float(), x.reshape(4)), 0),
    "memory": (lambda x: (torch.empty_like(x), x.new_empty(3), torch.empty(3, device=x.device)), 0),
    "zeros": (lambda x: x.new_zeros(3), 1),
    "add": (lambda x: x + 1, 1),
    "add in place": (lambda x: x.add_(1), 1),
    "three": (lambda x: ((x + 1) * 2).sum(), 3),
    "product": (lambda x: x @ x, 1),
    "linear": (lambda x: torch.addmm(x[0], x, x), 1),
    "copy": (lambda x: x.t().contiguous(), 1),
    "conversion": (lambda x: x.double(), 1),
    "cat": (lambda x: torch.cat([x, x]), 1),
    "assignment": (lambda x: x.__setitem__(0, x[1]), 1),
    "out": (lambda x: torch.sigmoid(x, out=torch.empty_like(x)), 1),
    "of the CPU": (lambda x: torch.ones(3) + 1, 0),
    "copy from the CPU": (lambda x: x.copy_(torch.ones(2, 2)), 0),
    "copy to the CPU": (lambda x: x.cpu() + 1, 0),
    "item": (lambda x: x[0, 0].item(), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", _LAUNCHES)
def test_counts_launches(name: str, pretend_gpu: Any) -> None:
    run, expected = _LAUNCHES[name]
    inputs = _gpu(2, 2)
    with pretend_gpu.count() as counts:
        run(inputs)
    assert counts.launches == expected, counts.report()


def test_a_capture_refuses_syncs_and_copies(pretend_gpu: Any) -> None:
    ones = _gpu(3)
    with pretend_gpu.capturing():
        doubled = ones * 2
        with pytest.raises(RuntimeError):
            doubled.sum().item()
        with pytest.raises(RuntimeError):
            doubled.cpu()
        if not pretend_gpu.is_real:
            with pytest.raises(RuntimeError):
                torch.tensor([1.0], device=GPU)
    assert doubled.tolist() == [2.0, 2.0, 2.0]


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        result = x * x
        ctx.save_for_backward(x, result)
        assert result.is_cuda
        return result, result.new_zeros(2)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> Any:
        x, result = ctx.saved_tensors
        assert grad.is_cuda and x.is_cuda and result.is_cuda
        return 2 * x * grad, None


def test_gradients_are_on_the_devices_of_their_leaves(pretend_gpu: Any) -> None:
    on_cpu = torch.tensor([1.0, 2.0], requires_grad=True)
    on_gpu = torch.tensor([3.0, 4.0], device=GPU, requires_grad=True)
    squares, _ = _Square.apply(on_cpu.to(GPU) * on_gpu, on_gpu)
    squares[:1].sum().cpu().backward()
    assert on_cpu.grad is not None and on_gpu.grad is not None
    assert not on_cpu.grad.is_cuda and on_gpu.grad.is_cuda
    assert on_cpu.grad.tolist() == [18.0, 0.0] and on_gpu.grad.tolist() == [6.0, 0.0]


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "Adagrad", "AdamW", "LBFGS"])
def test_modules_train_as_on_the_cpu(optimizer: str, pretend_gpu: Any) -> None:
    def train(device: str) -> Dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.ModuleDict(
            {
                "embedding": torch.nn.Embedding(7, 4, sparse=optimizer == "Adagrad"),
                "lstm": torch.nn.LSTM(4, 3, batch_first=True, bidirectional=True),
                "norm": torch.nn.LayerNorm(6),
            }
        )
        parameters = list(model.parameters())
        model.to(device)
        assert parameters == list(model.parameters())  # the same objects, as torch has it
        ids = torch.tensor([[1, 2, 3], [4, 5, 0]]).to(device)
        optimizer_ = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)

        def loss() -> torch.Tensor:
            optimizer_.zero_grad()
            vectors = model["embedding"](ids)
            packed = torch.nn.utils.rnn.pack_padded_sequence(
                vectors, torch.tensor([3, 2]), batch_first=True
            )
            output, _ = torch.nn.utils.rnn.pad_packed_sequence(
                model["lstm"](packed)[0], batch_first=True
            )
            result = model["norm"](output).pow(2).mean() + vectors.pow(2).mean()
            result.backward()
            if optimizer != "Adagrad":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            return result

        for _ in range(3):
            optimizer_.step(loss)
        assert {str(parameter.device) for parameter in model.parameters()} == {device}
        return {name: value.cpu() for name, value in model.state_dict().items()}

    expected, found = train("cpu"), train("cuda:0")
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


def test_modules_are_copied_saved_and_loaded(pretend_gpu: Any) -> None:
    model = torch.nn.Linear(2, 2)
    model.register_buffer("table", torch.arange(3))
    weight = model.weight
    model.cuda()
    assert model.weight is weight and weight.is_cuda and model.table.is_cuda
    clone = copy.deepcopy(model)
    assert clone.weight.is_cuda and clone.table.is_cuda
    assert torch.equal(clone.weight, model.weight)
    file = io.BytesIO()
    torch.save({**model.state_dict(), "on the CPU": torch.ones(2)}, file)
    for location, device in (
        (None, "cuda"),
        ("cpu", "cpu"),
        ("cuda:0", "cuda"),
        (device_mapping(-1), "cpu"),
        (device_mapping(0), "cuda"),
    ):
        file.seek(0)
        state = torch.load(file, map_location=location)
        assert state["weight"].device.type == device, location
        assert state["weight"].tolist() == model.weight.tolist()
        assert location is not None or not state["on the CPU"].is_cuda
    model.cpu()
    assert not weight.is_cuda and not model.table.is_cuda and clone.weight.is_cuda


def test_the_memory_of_a_freed_tensor_is_the_cpus_again(pretend_gpu: Any) -> None:
    for _ in range(300):
        del_ = [torch.zeros(10, device=GPU) for _ in range(10)]
        del del_
        assert not torch.zeros(10).is_cuda
        assert not torch.from_numpy(numpy.zeros(10)).is_cuda
    if not pretend_gpu.is_real:
        assert len(pretend_gpu._places) < 3000


def test_threads_have_the_gpu_too(pretend_gpu: Any) -> None:
    shared = _gpu(100)

    def run(i: int) -> float:
        vector = torch.full((100,), float(i), device="cuda:0") + shared
        assert vector.is_cuda
        with pytest.raises(RuntimeError):
            vector + torch.ones(100)
        return vector.sum().item()

    with pretend_gpu.count() as counts, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(40))) == [100.0 * (i + 1) for i in range(40)]
    assert counts.syncs == 40
    assert counts.launches == 120


def test_a_thread_that_outlives_it_goes_on() -> None:
    may_end = threading.Event()
    results = []
    with PretendGpu():
        thread = threading.Thread(
            target=lambda: (may_end.wait(), results.append(torch.ones(2) + 1))
        )
        thread.start()
    may_end.set()
    thread.join()
    assert results[0].tolist() == [2.0, 2.0]


def test_several_gpus() -> None:
    with gpu_for_tests(2):
        assert torch.cuda.device_count() >= 2
        first, second = torch.ones(2, device="cuda:0"), torch.ones(2).to("cuda:1")
        assert second.get_device() == 1
        with pytest.raises(RuntimeError, match="two devices"):
            first + second
        assert (first + second.to("cuda:0")).device == first.device
        with torch.cuda.device(1):
            assert torch.cuda.current_device() == 1
            assert torch.ones(2).cuda().device == second.device
        assert torch.cuda.current_device() == 0


def test_allennlp_finds_it(pretend_gpu: Any) -> None:
    assert torch.cuda.is_available() and torch.cuda.device_count() >= 1
    check_for_gpu(0)
    check_for_gpu([0])
    assert int_to_device(0) == GPU
    moved = move_to_device({"a": [torch.ones(2)], "b": "text"}, GPU)
    assert moved["a"][0].is_cuda and moved["b"] == "text"
    torch.cuda.empty_cache()
    assert torch.cuda.current_device() == 0


def test_randomness_is_kept_and_restored(pretend_gpu: Any) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state(), torch.cuda.get_rng_state()
    first = torch.rand(3, device=GPU)
    torch.set_rng_state(state[0])
    torch.cuda.set_rng_state(state[1])
    assert torch.equal(torch.rand(3, device=GPU), first)


def test_generators(pretend_gpu: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    assert not torch.randn(3, generator=generator).is_cuda
    assert not torch.randperm(3, generator=generator).is_cuda
    assert not torch.zeros(3).uniform_(generator=generator).is_cuda
    if not pretend_gpu.is_real:  # these have generators of their own
        assert torch.zeros(3, device=GPU).normal_(generator=generator).is_cuda


@pytest.mark.skipif(not hasattr(torch, "set_default_device"), reason="new in torch 2.0")
def test_default_device(pretend_gpu: Any) -> None:
    torch.set_default_device("cuda:0")
    try:
        assert torch.zeros(2).is_cuda and torch.tensor([1.0]).is_cuda and torch.arange(3).is_cuda
        assert torch.nn.Linear(2, 2).weight.is_cuda
        assert not torch.zeros(2, device="cpu").is_cuda
        assert not torch.from_numpy(numpy.zeros(2)).is_cuda
    finally:
        torch.set_default_device(None)
    with torch.device("cuda:0"):
        assert torch.ones(2).is_cuda
    assert not torch.ones(2).is_cuda


def test_checkpointing(pretend_gpu: Any) -> None:
    weight = _gpu(3).requires_grad_()
    result = torch.utils.checkpoint.checkpoint(
        lambda x: (x * 2).exp(),
        weight,
        **({} if torch.__version__ < "2" else {"use_reentrant": False}),
    )
    result.sum().backward()
    assert weight.grad is not None and weight.grad.is_cuda


def test_leaves_torch_as_it_was() -> None:
    names = ["device", "is_cuda", "to", "cpu", "cuda", "numpy", "tolist", "new_zeros", "__array__"]
    before = {name: vars(torch.Tensor).get(name) for name in names}
    functions = torch.zeros, torch.tensor, torch.cuda.is_available, torch.cuda.device
    registry = list(torch.serialization._package_registry)
    with PretendGpu():
        survivor = torch.zeros(2, device="cuda:0")
    assert before == {name: vars(torch.Tensor).get(name) for name in names}
    assert functions == (torch.zeros, torch.tensor, torch.cuda.is_available, torch.cuda.device)
    assert registry == torch.serialization._package_registry
    assert survivor.device == torch.device("cpu")
