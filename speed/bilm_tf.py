"""
Speed beside bilm-tf, in turns with it where there is a Python with TensorFlow, else ours alone.
"""

import functools
import json
import os
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy
import torch

from allennlp_elmo_plugin import Elmo, batch_to_ids
from allennlp_elmo_plugin.bilm.kernels.memory import keep_memory_of_training
from speed.floor import floor
from speed.report import Row
from speed.timing import take_turns
from speed.training import NUM_STEPS, OurTraining, make_batch
from speed.workload import Corpus, Sentence

_PROCESS = Path(__file__).with_name("bilm_tf_process.py")


class BilmTf(NamedTuple):
    """
    # Parameters

    folder : `str`
        bilm-tf's repository.
    python : `str`
        A Python with TensorFlow 2.15 and h5py.
    """

    folder: str
    python: str

    @contextmanager
    def program(
        self, task: str, settings: Dict[str, Any], items: List[numpy.ndarray]
    ) -> Iterator[Callable[[int], float]]:
        """
        Start a process, and give the function that runs the item of a number there and returns the
        mean square of the result, in embedding that of the mean of all layers. See
        `bilm_tf_process.py` for the task and its settings.
        """
        with tempfile.TemporaryDirectory() as folder:
            path, data = os.path.join(folder, "settings.json"), os.path.join(folder, "data.npz")
            Path(path).write_text(json.dumps(settings), encoding="utf-8")
            numpy.savez(data, **{str(i): item for i, item in enumerate(items)})
            errors = Path(folder, "errors.txt")
            n_threads = str(torch.get_num_threads())
            with errors.open("wb") as stderr:
                process = subprocess.Popen(
                    [self.python, _PROCESS, self.folder, task, path, data, n_threads],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                    env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
                )
            assert process.stdin is not None and process.stdout is not None

            def run(number: int) -> float:
                process.stdin.write(f"{number}\n")
                process.stdin.flush()
                answer = process.stdout.readline()
                if not answer:
                    raise RuntimeError(f"bilm-tf has ended: {errors.read_text()[-1000:]}")
                return float(answer)

            with process:
                try:
                    yield run
                finally:
                    process.kill()


class _Embedding(NamedTuple):
    """Sentences, and the settings of ours by the name of the row."""

    name: str
    bars: Dict[str, Dict[str, float]]  # by precision and size
    kept: bool  # in bfloat16
    batches: Callable[[int], List[List[Sentence]]]


def _fixed(number: int) -> List[List[Sentence]]:
    corpus = Corpus()
    return [
        [[corpus.words[i] for i in corpus.word_ids(25)] for _ in range(64)] for _ in range(number)
    ]


_EMBEDDINGS = [
    _Embedding(
        "64 x 25",
        {"float32": {"small-512": 1, "original": 1.5}, "bfloat16": {"small-512": 1.3}},
        False,
        _fixed,
    ),
    _Embedding(
        "real lengths",
        {
            "float32": {"small-512": 3, "original": 3},
            "bfloat16": {"small-512": 6, "original": 6},
        },
        True,
        lambda number: Corpus().batches(number),
    ),
]
_TRAINING_BARS = {
    "float32": {"small-512": 2.5, "original": 2.2},
    "bfloat16": {"small-512": 3.5, "original": 3.2},
}
# Batches that are read before the measurement where words are kept.
_BATCHES_BEFORE = 40


def measure(
    files: Dict[str, Tuple[str, str]], rounds: int, peer: Optional[BilmTf] = None
) -> Iterator[Row]:
    """
    Measure the workloads of the comparison on the models whose files are given by size.
    """
    for size in ("small-512", "original"):
        if size in files:
            for workload in _EMBEDDINGS:
                yield from _embedding(size, *files[size], workload, rounds, peer)
    for size, batch_size, n_words, n_samples in (
        ("small-512", 64, 20_000, 2_048),
        ("original", 32, 100_000, 8_192),
    ):
        if size in files:
            yield from _training(size, *files[size], batch_size, n_words, n_samples, rounds, peer)


def _embedding(
    size: str,
    options_file: str,
    weight_file: str,
    workload: _Embedding,
    rounds: int,
    peer: Optional[BilmTf],
) -> Iterator[Row]:
    batches = workload.batches(rounds + 2)
    ids = [batch_to_ids(batch) for batch in batches]
    programs: Dict[str, Callable[[int], Any]] = {}
    models = {}
    for precision in ("float32", "bfloat16"):
        kept = workload.kept and precision == "bfloat16"
        elmo = models[precision] = Elmo(
            options_file,
            weight_file,
            1,
            dropout=0.0,
            precision=precision,
            max_cached_words=50_000 if kept else 0,
        ).eval()
        if kept:
            for batch in Corpus(seed=1).batches(_BATCHES_BEFORE):
                elmo._elmo_lstm.token_layer.embed_words([word for row in batch for word in row])
        programs[precision] = lambda i, elmo=elmo: elmo(ids[i])
    settings = {"options_file": options_file, "weight_file": weight_file}
    with ExitStack() as stack, torch.no_grad():
        if peer is not None:
            with_ends = [[["<S>", *sentence, "</S>"] for sentence in batch] for batch in batches]
            items = [batch_to_ids(batch).numpy() for batch in with_ends]
            theirs = stack.enter_context(peer.program("embedding", settings, items))
            programs["bilm-tf"] = theirs
            if workload.batches is _fixed:  # nothing is padded
                _check(theirs(0), models["float32"](ids[0]))
        seconds = take_turns(programs, range(rounds + 1))
        for precision, elmo in models.items():
            n_words = [sum(map(len, batch)) for batch in batches]
            yield _row(
                f"bilm-tf's embedding, {workload.name}, {precision}"
                + (", words kept" if workload.kept and precision == "bfloat16" else ""),
                size,
                workload.bars[precision].get(size),
                sum(n_words[1:-1]) / rounds,
                seconds,
                precision,
                floor(n_words[-1], functools.partial(elmo, ids[-1])),
                0.85 if precision == "float32" else None,
            )


def _check(expected: float, output: Dict[str, Any]) -> None:
    actual = float(output["elmo_representations"][0].square().mean())
    if abs(actual / expected - 1) > 1e-4:
        raise AssertionError(f"bilm-tf's mean square is {expected}, ours {actual}")


def _training(
    size: str,
    options_file: str,
    weight_file: str,
    batch_size: int,
    n_words: int,
    n_samples: int,
    rounds: int,
    peer: Optional[BilmTf],
) -> Iterator[Row]:
    keep_memory_of_training()  # as `allennlp train` does; AllenNLP's steps were timed without it
    batches = [make_batch(Corpus(), n_words, batch_size) for _ in range(rounds + 1)]
    trainings = {
        precision: OurTraining(options_file, weight_file, n_words, n_samples, precision)
        for precision in ("float32", "bfloat16")
    }
    programs: Dict[str, Callable[[int], Any]] = {
        precision: lambda i, training=training: training.step(batches[i])
        for precision, training in trainings.items()
    }
    options = json.loads(Path(options_file).read_text(encoding="utf-8"))
    options["char_cnn"]["n_characters"] = 261  # in training
    settings = {
        **options,
        "batch_size": batch_size,
        "unroll_steps": NUM_STEPS,
        "n_tokens_vocab": n_words,
        "n_negative_samples_batch": n_samples,
    }
    with ExitStack() as stack:
        if peer is not None:
            items = [
                numpy.concatenate(
                    [
                        numpy.pad(batch.character_ids.numpy() - 1, ((0, 0), (1, 1), (0, 0))),
                        batch.targets.numpy()[:, :, None],
                        batch.targets_reverse.numpy()[:, :, None],
                    ],
                    2,
                ).clip(0)
                for batch in batches
            ]  # (batch_size, NUM_STEPS, 52) each
            programs["bilm-tf"] = stack.enter_context(peer.program("training", settings, items))
        seconds = take_turns(programs, range(rounds + 1))
    for precision, training in trainings.items():
        yield _row(
            f"bilm-tf's training, {batch_size} x {NUM_STEPS}, {precision}",
            size,
            _TRAINING_BARS[precision][size],
            batch_size * NUM_STEPS,
            seconds,
            precision,
            floor(batch_size * NUM_STEPS, functools.partial(training.step, batches[-1])),
            0.75,
        )


def _row(
    workload: str,
    size: str,
    bar: Optional[float],
    n_words: float,
    seconds: Dict[str, float],
    precision: str,
    words_of_floor: Optional[float],
    share_bar: Optional[float],
) -> Row:
    theirs = seconds.get("bilm-tf")
    return Row(
        workload=workload,
        size=size,
        value=None if theirs is None else theirs / seconds[precision],
        bar=bar,
        words_per_second=n_words / seconds[precision],
        baseline_words_per_second=None if theirs is None else n_words / theirs,
        floor_words_per_second=words_of_floor,
        share_bar=share_bar,
        note="" if theirs is None else "beside bilm-tf",
    )
