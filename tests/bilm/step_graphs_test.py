"""Steps of the recurrence as CUDA graphs give the numbers of the CPU."""

import threading
from types import SimpleNamespace
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
        for parameter in lstm.parameters():  # Without clips, large ones would amplify rounding.
            torch.nn.init.normal_(parameter, 0, 0.3 if arguments["cell_clip"] is None else 0.7)
    return lstms


def _run(
    lstms: List[ProjectedLstm],
    device: torch.device,
    sizes: List[int] = SIZES,
    seed: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Any:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype).to(device)

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
    return [kind.graphs for kind in kept.kinds.values()]


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
def test_types_are_apart(gpu: Any, kept: Any) -> None:
    for i, (precision, tolerance) in enumerate((("float32", 1e-6), ("bfloat16", 0.05))):
        _check(gpu, precision=precision, tolerance=tolerance)
        assert len(kept.kinds) == i + 1
    lstms = [lstm.double() for lstm in _lstms()]
    expected = _run(lstms, torch.device("cpu"), dtype=torch.float64)
    assert_close(_run(lstms, gpu.device, dtype=torch.float64), expected, 1e-12)
    assert len(kept.kinds) == 3 and None not in _graphs(kept)


@needs_graphs
def test_a_sequence_of_calls(gpu: Any, kept: Any) -> None:
    """Other weights, sizes and states in the same graphs, then more sequences than they have."""
    for i, sizes in enumerate([SIZES, [1] * 9, [5, *[3] * 8], SIZES, [40, *[17] * 8], SIZES]):
        _check(gpu, sizes, i, seed=i)
        (graphs,) = _graphs(kept)
        assert graphs.n_sequences == (16 if i < 4 else 64)


@needs_graphs
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_made_in_one_mode_and_used_in_another(mode: Any, gpu: Any, kept: Any) -> None:
    other = {torch.no_grad: torch.inference_mode, torch.inference_mode: torch.no_grad}[mode]
    lstms = _lstms()
    expected = _run(lstms, torch.device("cpu"))
    for each in (mode, other, mode):
        with each():
            assert_close(_run(lstms, gpu.device), expected)
        assert _graphs(kept) != [None]


@needs_graphs
def test_one_call_at_a_time(gpu: Any, kept: Any) -> None:
    _check(gpu)
    (graphs,) = _graphs(kept)
    replays: List[Any] = []
    for size, graph in graphs._graphs.items():
        graphs._graphs[size] = _Counted(graph, replays)
    ((key, kind),) = kept.kinds.items()
    assert kept.take(key, gpu.device) is kind
    _check(gpu)
    assert not replays
    kept.put_back(kind)
    _check(gpu)
    assert len(replays) == len(SIZES)


@needs_graphs
def test_one_call_makes_them(gpu: Any, kept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def try_while_another_call_runs(graphs: Any, *_: Any) -> bool:
        made.append(graphs)
        _check(gpu)
        return True

    monkeypatch.setattr(step_graphs, "_are_faster", try_while_another_call_runs)
    _check(gpu)
    assert made == _graphs(kept)


@needs_graphs
def test_an_interrupted_call(gpu: Any, kept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises its error, and later calls have graphs."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    for name in ("_capture", "start", "run"):
        with monkeypatch.context() as patch:
            patch.setattr(step_graphs.StepGraphs, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                _check(gpu)
        _check(gpu)
        assert None not in _graphs(kept)
        assert not any(kind.in_use for kind in kept.kinds.values())
        if name == "_capture":
            kept.kinds.clear()


def test_an_interrupted_capture(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, and its own error doesn't hide the interrupt."""
    happened: List[str] = []
    run = step_graphs.Steps.run

    def interrupt(*args: Any) -> None:
        if happened == ["begin"]:
            raise KeyboardInterrupt
        run(*args)

    def end() -> None:
        happened.append("end")
        raise RuntimeError("operation failed due to a previous error during capture")

    graph = SimpleNamespace(
        capture_begin=lambda *_, **__: happened.append("begin"), capture_end=end
    )
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    monkeypatch.setattr(step_graphs.Steps, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _run(_lstms(), gpu.device)
    assert happened == ["begin", "end"]


@needs_graphs
def test_a_call_waits_for_the_one_before(
    gpu: Any, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on another stream."""
    _check(gpu)
    (graphs,) = _graphs(kept)
    happened: List[str] = []
    done, stream = graphs.done, type(torch.cuda.current_stream())
    wait_event, start = stream.wait_event, graphs.start

    class Done:
        def record(self) -> None:
            happened.append("record")
            done.record()

    def wait(self: Any, event: Any) -> None:
        happened.append("wait" if event is graphs.done else "wait for another")
        wait_event(self, done)

    monkeypatch.setattr(graphs, "done", Done())
    monkeypatch.setattr(stream, "wait_event", wait)
    monkeypatch.setattr(graphs, "start", lambda *args: (happened.append("start"), start(*args)))
    with torch.cuda.stream(torch.cuda.Stream()):
        _check(gpu)
    assert [each for each in happened if each != "wait for another"] == ["wait", "start", "record"]


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
    for n in range(step_graphs._MAX_KEPT):
        _check(gpu, cell_clip=1.0 + n)
    assert None not in _graphs(kept)
    for clip in (1.0, 10.0, 11.0):
        _check(gpu, cell_clip=clip)
    assert _clips(kept) == [*[4.0 + n for n in range(step_graphs._MAX_KEPT - 3)], 1.0, 10.0, 11.0]


def _clips(kept: Any) -> List[float]:
    return [key[3].memory for key in kept.kinds]


@needs_graphs
def test_those_in_use_are_kept(gpu: Any, kept: Any) -> None:
    _check(gpu)
    ((key, kind),) = kept.kinds.items()
    assert kept.take(key, gpu.device) is kind
    for n in range(step_graphs._MAX_KEPT):
        _check(gpu, cell_clip=1.0 + n)
    assert kind.graphs is not None
    assert _clips(kept) == [0.4, *[1.0 + n for n in range(step_graphs._MAX_KEPT)]]
    kept.put_back(kind)
    assert kind.graphs is None
    assert _clips(kept) == [1.0 + n for n in range(step_graphs._MAX_KEPT)]


@needs_graphs
def test_few_are_kept_of_each_gpu(kept: Any) -> None:
    with gpu_for_tests(2):
        for n in range(step_graphs._MAX_KEPT):
            lstms = _lstms(cell_clip=1.0 + n)
            expected = _run(lstms, torch.device("cpu"))
            for index in range(2):
                assert_close(_run(lstms, torch.device("cuda", index)), expected)
        assert len(kept.kinds) == 2 * step_graphs._MAX_KEPT and None not in _graphs(kept)


@needs_graphs
def test_precisions_of_products_are_apart(gpu: Any, kept: Any) -> None:
    settings = torch.backends.cuda.matmul
    before = settings.allow_tf32
    try:
        for i, precision in enumerate((False, True, False)):
            settings.allow_tf32 = precision
            _check(gpu, tolerance=0.01)
            assert len(kept.kinds) == min(i + 1, 2)
        if hasattr(settings, "fp32_precision"):  # after which `allow_tf32` is refused
            settings.fp32_precision = "ieee"
            _check(gpu)
    finally:
        settings.allow_tf32 = before


@needs_graphs
def test_under_autocast(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are used without it, too."""
    capture, has_autocast = step_graphs.StepGraphs._capture, []

    def note(self: Any, size: int) -> Any:
        has_autocast.append(torch.is_autocast_enabled())
        return capture(self, size)

    monkeypatch.setattr(step_graphs.StepGraphs, "_capture", note)
    with torch.autocast("cuda", dtype=torch.float16):
        assert torch.is_autocast_enabled()
        _run(_lstms(), gpu.device)
    assert has_autocast and not any(has_autocast)


def test_few_steps_go_without(gpu: Any, kept: Any) -> None:
    _check(gpu, [4, 4, 2])
    assert not kept.kinds


@pytest.mark.parametrize(
    "function",
    [
        (torch.cuda, "is_current_stream_capturing"),
        (torch, "are_deterministic_algorithms_enabled"),
    ],
)
def test_where_graphs_cannot_be(
    function: Any, gpu: Any, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within another capture, and where the way that is faster must not decide."""
    monkeypatch.setattr(*function, lambda: True)
    _check(gpu)
    assert not kept.kinds


@needs_graphs
def test_tensors_of_another_class(gpu: Any, kept: Any) -> None:
    class Other(torch.Tensor):
        pass

    lstms = [lstm.to(gpu.device) for lstm in _lstms()]
    inputs = [torch.randn(sum(SIZES), 7).to(gpu.device) for _ in lstms]
    zeros = [lstm.zero_state(SIZES[0], inputs[0]) for lstm in lstms]
    states = [(output, memory.as_subclass(Other)) for output, memory in zeros]
    with torch.no_grad():
        run_in_step(lstms, inputs, SIZES, states)  # type: ignore[arg-type]
    assert not kept.kinds


@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory."), TypeError("unexpected")])
def test_steps_that_cannot_be_captured(
    error: Exception, gpu: Any, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise error

    monkeypatch.setattr(step_graphs.StepGraphs, "_capture", refuse)
    _check(gpu)
    assert _graphs(kept) == [None]
    monkeypatch.setattr(step_graphs.StepGraphs, "__init__", None)  # it is not called again
    _check(gpu)


@needs_graphs
@pytest.mark.parametrize("name", ["_capture", "__init__"])
def test_too_little_memory_for_more(
    name: str, gpu: Any, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise gpu.out_of_memory()

    _check(gpu)
    (graphs,) = _graphs(kept)
    sizes = [40, *[17] * 8]
    with monkeypatch.context() as patch:
        patch.setattr(step_graphs.StepGraphs, name, refuse)
        _check(gpu, sizes)
    for each in (sizes, SIZES):
        _check(gpu, each)
        assert _graphs(kept) == [graphs]


@needs_graphs
def test_a_capture_for_another_number_fails(
    gpu: Any, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise gpu.out_of_memory()

    _check(gpu)
    monkeypatch.setattr(step_graphs.StepGraphs, "_capture", refuse)
    _check(gpu, [3] * 8)
    assert _graphs(kept) == [None]


def test_a_failed_capture_is_waited_for(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step before it may still write to memory that is then freed."""
    stream = type(torch.cuda.current_stream())
    wait_stream, waits = stream.wait_stream, []

    def wait(*streams: Any) -> None:
        waits.append(streams)
        wait_stream(*streams)

    def refuse(*_: Any, **__: Any) -> None:
        raise TypeError("unexpected keyword argument")

    monkeypatch.setattr(stream, "wait_stream", wait)
    graph = SimpleNamespace(capture_begin=refuse)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    _check(gpu)
    (there, back) = waits
    assert there[::-1] == back


class TestTrial:
    @pytest.fixture(autouse=True)
    def trial(self, monkeypatch: pytest.MonkeyPatch, kept: Any) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(step_graphs, "_kept", kept)

    @needs_graphs
    def test_slow_graphs_are_not_used(self, gpu: Any, kept: Any, monkeypatch: Any) -> None:
        _set_times(monkeypatch, plain=1, graphed=2)
        _check(gpu)
        assert _graphs(kept) == [None]

    @needs_graphs
    def test_fast_graphs_are_used(self, gpu: Any, kept: Any, monkeypatch: Any) -> None:
        _set_times(monkeypatch, plain=2, graphed=1)
        _check(gpu)
        assert _graphs(kept) != [None]

    @needs_graphs
    @pytest.mark.parametrize("first", [SIZES, [40] * 8])
    def test_slow_for_many_sequences(
        self, first: List[int], gpu: Any, kept: Any, monkeypatch: Any
    ) -> None:
        """And fast for few, whichever call is the first; each number is tried once."""
        for sizes in (first, SIZES, [40] * 8):
            is_large = sizes[0] > 16
            _set_times(monkeypatch, plain=1 if is_large else 2, graphed=2 if is_large else 1)
            _check(gpu, sizes)
        (graphs,) = _graphs(kept)
        assert graphs.n_sequences == 16
        monkeypatch.setattr(step_graphs, "_are_faster", None)  # it is not called again
        for sizes in ([33] * 8, [90] * 8, SIZES):
            _check(gpu, sizes)
        assert _graphs(kept) == [graphs]

    @needs_graphs
    @pytest.mark.parametrize("error, is_used", [(0.1, False), (1e-4, True)])
    def test_numbers_are_compared(
        self, error: float, is_used: bool, gpu: Any, kept: Any, monkeypatch: Any
    ) -> None:
        """Not to the last digits, which depend on the number of rows."""
        _set_times(monkeypatch, plain=2, graphed=1)
        run = step_graphs.StepGraphs.run

        def run_wrongly(self: Any, from_inputs: Any, output: Any) -> None:
            run(self, from_inputs, output)
            output[0, 0, 0] += error

        monkeypatch.setattr(step_graphs.StepGraphs, "run", run_wrongly)
        _check(gpu, tolerance=1e-3)
        assert (_graphs(kept) != [None]) == is_used


def _set_times(monkeypatch: Any, plain: float, graphed: float) -> None:
    times = iter([0.0, plain, plain, plain + graphed] * 2)
    monkeypatch.setattr(step_graphs, "time", SimpleNamespace(perf_counter=lambda: next(times)))


def test_rounded_sizes() -> None:
    rounded = [step_graphs._rounded(size) for size in range(1, 129)]
    assert rounded[:12] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 10, 12, 12]
    assert all(size <= each <= 1.25 * size for size, each in enumerate(rounded, 1))
    assert len(set(rounded)) == 24 and rounded[-1] == 128
