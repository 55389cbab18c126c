"""Speed of `allennlp elmo` beside the bare model, and the time to import the package."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any
from unittest import mock

import torch
from allennlp.commands import main

from allennlp_elmo_plugin import ElmoEmbedder
from speed.report import Row, take_turns
from speed.workload import Corpus, Sentence

_START = """
import time, allennlp.commands
start = time.perf_counter()
import allennlp_elmo_plugin
print(time.perf_counter() - start)
"""


def measure_start(rounds: int) -> Row:
    """Measure the import of the package in new processes."""
    times = []
    for _ in range(rounds + 1):  # The first reads the files from the disk.
        command = [sys.executable, "-W", "ignore", "-c", _START]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        times.append(float(output))
    return Row(
        workload="start-up",
        size="",
        value=median(times[1:]),
        note="seconds to import the package after AllenNLP; less is better",
    )


def measure(
    size: str, options_file: str, weight_file: str, rounds: int, select: Callable[[str], Any]
) -> Iterator[Row]:
    """
    Compare the command with the model alone on the same batches. The arguments are those of
    `speed.embedding.measure`.
    """
    if not select("allennlp elmo") or size == "original":
        return
    n_lines = 20_000 if size == "small" else 200
    sentences = Corpus(seed=1).sentences(n_lines)
    n_words = sum(map(len, sentences))
    batches: list[list[Sentence]] = []
    launch_batch = ElmoEmbedder.launch_batch

    def record(embedder: ElmoEmbedder, batch: list[Sentence], *args: Any) -> Any:
        batches.append(batch)
        return launch_batch(embedder, batch, *args)

    with tempfile.TemporaryDirectory() as folder:
        text, layers = (os.path.join(folder, name) for name in ("text", "layers.hdf5"))
        with open(text, "w", encoding="utf-8") as file:
            file.writelines(" ".join(words) + "\n" for words in sentences)
        files = ["--options-file", options_file, "--weight-file", weight_file]
        command = ["allennlp", "elmo", text, layers, "--all", "--force", "--quiet", *files]

        def embed(_: Any) -> None:
            batches.clear()
            with (
                mock.patch.object(ElmoEmbedder, "launch_batch", record),
                mock.patch.object(sys, "argv", command),
                contextlib.redirect_stdout(io.StringIO()),  # its summary
            ):
                main()

        @torch.no_grad()
        def run(_: Any) -> None:
            bilm = ElmoEmbedder(options_file, weight_file).elmo_bilm
            for batch in batches:
                bilm.run_sentences(batch)

        seconds = take_turns({"command": embed, "bare": run}, range(2))
    yield Row(
        workload="allennlp elmo",
        size=size,
        value=seconds["bare"] / seconds["command"],
        words_per_second=n_words / seconds["command"],
        baseline_words_per_second=n_words / seconds["bare"],
        note=f"{n_lines:,} lines to HDF5, relative to the bare model",
    )
