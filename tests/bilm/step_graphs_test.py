"""Steps of the recurrence as CUDA graphs give the numbers of the CPU."""

import threading
from typing import Any, Iterator, List

import pytest
import torch

from allennlp_elmo_plugin.bilm import step_graphs
from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm, run_in_step
from tests.support.device_checks import assert_close
from tests.support.pretend_gpu import gpu_for_tests

LENGTHS = [3, 9, 1, 12, 9, 9, 12, 2, 12, 12, 5, 11]
SIZES = [sum(length > t for length in LENGTHS) for t in range(max(LENGTHS))]
needs_graphs = pytest.mark.skipif(
    not hasattr(torch, "compiler"), reason="torch before 2.1 has no graphs of one thread"
)


@pytest.fixture
def gpu() -> Iterator[Any]:
    with gpu_for_tests() as gpu:
        yield gpu


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    """None are kept at the start, and they are used even though a pretend GPU is slow."""
    monkeypatch.setattr(step_graphs, "_are_faster", lambda *_: True)
    return step_graphs._kept


def _lstms(seed: int = 0, precision: str = "float32", **kwargs: Any) -> List[ProjectedLstm]:
    torch.manual_seed(seed)
    arguments = {"projection_dim": 7, "cell_clip": 0.4, "proj_clip": 0.2, **kwargs}
    lstms = [ProjectedLstm(7, 12, **arguments) for _ in "fb"]
    for lstm in lstms:
        lstm.precision = precision
        for parameter in lstm.parameters():
            torch.nn.init.normal_(parameter, 0, 0.7)
    return lstms


def _run(
    lstms: List[ProjectedLstm], device: torch.device, sizes: List[int] = SIZES, seed: int = 1
) -> Any:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    with torch.inference_mode(False), torch.no_grad():
        lstms = [lstm.to(device) for lstm in lstms]
    inputs = [random(sum(sizes), 7) for _ in lstms]
    states = [(random(sizes[0], each.projection_dim) / 4, random(sizes[0], 12)) for each in lstms]
    with torch.no_grad():
        results = run_in_step(lstms, inputs, sizes, states)
    return [[part.cpu().numpy() for part in parts] for parts in results]


def _check(gpu: Any, *args: Any, tolerance: float = 1e-6, **kwargs: Any) -> None:
    lstms = _lstms(**kwargs)
    expected = _run(lstms, torch.device("cpu"), *args)
    assert_close(_run(lstms, gpu.device, *args), expected, tolerance)


def _graphs(kept: Any) -> List[Any]:
    return list(kept.graphs.values())


@needs_graphs
@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"cell_clip": None, "proj_clip": None},
        {"projection_dim": 12},  # without a projection
    ],
)
def test_one_call(kwargs: Any, gpu: Any, kept: Any) -> None:
    _check(gpu, **kwargs)
    (graphs,) = _graphs(kept)
    # 12 sequences, 11, 10, ... in graphs of 12, 10, 8, 7, 6, 5 and 4
    assert sorted(graphs._graphs) == sorted({step_graphs._rounded(size) for size in SIZES})
    assert len(graphs._graphs) < len(set(SIZES)) or len(set(SIZES)) < 8


@needs_graphs
def test_bfloat16(gpu: Any) -> None:
    _check(gpu, precision="bfloat16", tolerance=0.05)


@needs_graphs
def test_a_sequence_of_calls(gpu: Any, kept: Any) -> None:
    """Other weights, sizes and states in the same graphs, then more sequences than they have."""
    for i, sizes in enumerate([SIZES, [1] * 9, [5, *[3] * 8], SIZES, [40, *[17] * 8], SIZES]):
        _check(gpu, sizes, i, seed=i)
        (graphs,) = _graphs(kept)
        assert graphs.n_sequences == (16 if i < 4 else 64)


@needs_graphs
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_made_in_one_mode_and_used_in_another(mode: Any, gpu: Any) -> None:
    other = {torch.no_grad: torch.inference_mode, torch.inference_mode: torch.no_grad}[mode]
    lstms = _lstms()
    expected = _run(lstms, torch.device("cpu"))
    for each in (mode, other, mode):
        with each():
            assert_close(_run(lstms, gpu.device), expected)


@needs_graphs
def test_one_call_at_a_time(gpu: Any, kept: Any) -> None:
    _check(gpu)
    (graphs,) = _graphs(kept)
    replays: List[Any] = []
    for size, graph in graphs._graphs.items():
        graphs._graphs[size] = _Counted(graph, replays)
    assert graphs.in_use.acquire(blocking=False)
    _check(gpu)
    assert not replays
    graphs.in_use.release()
    _check(gpu)
    assert len(replays) == len(SIZES)
    assert graphs.in_use.acquire(blocking=False)


class _Counted:
    def __init__(self, graph: Any, replays: List[Any]) -> None:
        self.graph, self.replays = graph, replays

    def replay(self) -> None:
        self.replays.append(self)
        self.graph.replay()


@needs_graphs
def test_threads(gpu: Any) -> None:
    failures: List[BaseException] = []

    def run(seed: int) -> None:
        try:
            for _ in range(3):
                assert_close(_run(lstms[seed], gpu.device), expected[seed])
        except BaseException as error:
            failures.append(error)

    lstms = [_lstms(seed) for seed in range(3)]
    expected = [_run(each, torch.device("cpu")) for each in lstms]
    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@needs_graphs
def test_few_are_kept(gpu: Any, kept: Any) -> None:
    for n in range(step_graphs._MAX_KEPT + 2):
        _check(gpu, cell_clip=1.0 + n)
    assert len(kept.graphs) == step_graphs._MAX_KEPT
    clips = [key[3] for key in kept.graphs]
    assert [clip.memory for clip in clips] == [3.0 + n for n in range(step_graphs._MAX_KEPT)]


def test_few_steps_go_without(gpu: Any, kept: Any) -> None:
    _check(gpu, [4, 4, 2])
    assert not kept.graphs


def test_within_another_capture(gpu: Any, kept: Any) -> None:
    lstms = [lstm.to(gpu.device) for lstm in _lstms()]
    inputs = [torch.randn(sum(SIZES), 7).to(gpu.device) for _ in lstms]
    states = [lstm.zero_state(SIZES[0], inputs[0]) for lstm in lstms]
    with torch.no_grad(), gpu.capturing():
        run_in_step(lstms, inputs, SIZES, states)
    assert not kept.graphs


@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory."), TypeError("unexpected")])
def test_steps_that_cannot_be_captured(
    error: Exception, gpu: Any, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise error

    monkeypatch.setattr(step_graphs.StepGraphs, "_capture", refuse)
    _check(gpu)
    assert _graphs(kept) == [None]
    _check(gpu)


class TestTrial:
    @pytest.fixture(autouse=True)
    def trial(self, monkeypatch: pytest.MonkeyPatch, kept: Any) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(step_graphs, "_kept", kept)

    @needs_graphs
    def test_slow_graphs_are_not_used(self, gpu: Any, kept: Any, monkeypatch: Any) -> None:
        times = iter([0.0, 1.0, 1.0, 3.0] * 2)
        monkeypatch.setattr(step_graphs.time, "perf_counter", lambda: next(times))
        _check(gpu)
        assert _graphs(kept) == [None]

    @needs_graphs
    def test_fast_graphs_are_used(self, gpu: Any, kept: Any, monkeypatch: Any) -> None:
        times = iter([0.0, 2.0, 2.0, 3.0] * 2)
        monkeypatch.setattr(step_graphs.time, "perf_counter", lambda: next(times))
        _check(gpu)
        assert _graphs(kept) != [None]

    @needs_graphs
    def test_wrong_graphs_are_not_used(self, gpu: Any, kept: Any, monkeypatch: Any) -> None:
        times = iter([0.0, 2.0, 2.0, 3.0] * 2)
        monkeypatch.setattr(step_graphs.time, "perf_counter", lambda: next(times))
        run = step_graphs.StepGraphs.run

        def run_wrongly(self: Any, from_inputs: Any, output: Any) -> None:
            run(self, from_inputs, output)
            output[0, 0, 0] += 0.1

        monkeypatch.setattr(step_graphs.StepGraphs, "run", run_wrongly)
        _check(gpu)
        assert _graphs(kept) == [None]


def test_rounded_sizes() -> None:
    rounded = [step_graphs._rounded(size) for size in range(1, 129)]
    assert rounded[:12] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 10, 12, 12]
    assert all(size <= each <= 1.25 * size for size, each in enumerate(rounded, 1))
    assert len(set(rounded)) == 24 and rounded[-1] == 128
