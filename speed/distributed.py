"""
`python -m speed.distributed`: steps of distributed training on this machine's CPUs, by vocabulary
and number of processes: words/s, bytes that each process sends in a step, and its peak memory.

Bytes are counted at the loopback interface, which nothing else should use meanwhile.
"""

import argparse
import logging
import os
import re
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from statistics import median
from typing import Any, Dict, List

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from allennlp.data import Vocabulary
from allennlp.nn.parallel import DdpWrappedModel

from allennlp_elmo_plugin import BiLmOptions, batch_to_ids
from allennlp_elmo_plugin.data.vocabulary import LM_NAMESPACE
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.training.sparse_ddp_accelerator import (
    SparseDdpAccelerator,
    SparseDdpWrappedModel,
)
from speed.models import write_model
from speed.report import machine, write_json
from speed.workload import Corpus

NUM_STEPS = 20


@dataclass
class Measurement:
    """
    What `measure` found.

    # Parameters

    size : `str`
        Of the model, see `speed.models`.
    n_words, n_processes : `int`
    words_per_second : `float`
        Of all processes together.
    bytes_per_step : `float`
        Sent by a process in a step, all protocols included.
    peak_memory : `float`
        In GB (10^9 bytes), of the largest process.
    """

    size: str
    n_words: int
    n_processes: int
    words_per_second: float
    bytes_per_step: float
    peak_memory: float


def measure(
    size: str, n_words: int, n_processes: int, batch_size: int, n_samples: int, n_steps: int
) -> Measurement:
    """
    Train a random model for some steps of `batch_size` rows of 20 words in each process.

    # Parameters

    size : `str`
        Of the model, see `speed.models`.
    n_words, n_processes, batch_size, n_samples, n_steps : `int`
    """
    with tempfile.TemporaryDirectory() as folder:
        options = BiLmOptions.from_file(write_model(size, folder)[0])
        vocabulary = Vocabulary(non_padded_namespaces=[LM_NAMESPACE])
        for word in ["</S>", "<S>", "<UNK>"]:
            vocabulary.add_token_to_namespace(word, LM_NAMESPACE)
        for index in range(3, n_words):
            vocabulary.add_token_to_namespace(f"word{index}", LM_NAMESPACE)
        results = mp.get_context("fork").SimpleQueue()
        arguments = (folder, options, vocabulary, n_processes, batch_size, n_samples, n_steps)
        mp.start_processes(_train, (*arguments, results), n_processes, start_method="fork")
        ranks = [results.get() for _ in range(n_processes)]
    return Measurement(
        size,
        n_words,
        n_processes,
        words_per_second=n_processes * batch_size * NUM_STEPS / max(r["seconds"] for r in ranks),
        # What one process sends, another receives: the interface counts it once.
        bytes_per_step=max(r["bytes"] for r in ranks) / n_steps / n_processes,
        peak_memory=max(r["peak_memory"] for r in ranks),
    )


def _train(
    rank: int,
    folder: str,
    options: BiLmOptions,
    vocabulary: Vocabulary,
    n_processes: int,
    batch_size: int,
    n_samples: int,
    n_steps: int,
    results: Any,
) -> None:
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    module = BidirectionalLanguageModel(
        vocabulary, options=options.to_dict(), num_samples=n_samples
    )
    model: Any = module
    wrapped: Any = None
    if n_processes > 1:
        method = f"file://{folder}/rendezvous"
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", method, world_size=n_processes, rank=rank)
        accelerator = SparseDdpAccelerator(
            local_rank=rank, world_size=n_processes, cuda_device=torch.device("cpu")
        )
        module, wrapped = accelerator.wrap_model(module)
        assert isinstance(wrapped, DdpWrappedModel)
        model = wrapped.model
    optimizer = torch.optim.Adagrad(
        module.parameters(), lr=0.2, initial_accumulator_value=1.0, eps=0.0
    )
    torch.manual_seed(rank)
    corpus = Corpus(vocabulary.get_vocab_size(LM_NAMESPACE), seed=rank)
    seconds = []
    n_bytes = 0
    for step in range(n_steps + 1):
        batch = _batch(corpus, batch_size)
        if n_processes > 1:
            dist.barrier()
        n_bytes_before, start = _bytes_received(), time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(**batch)["loss"].backward()
        if isinstance(wrapped, SparseDdpWrappedModel):
            wrapped.average_sparse_gradients()
        optimizer.step()
        if n_processes > 1:
            dist.barrier()
        if step > 0:  # The first is for warming up.
            seconds.append(time.perf_counter() - start)
            n_bytes += _bytes_received() - n_bytes_before
    results.put({"seconds": median(seconds), "bytes": n_bytes, "peak_memory": _peak_memory()})


def _batch(corpus: Corpus, batch_size: int) -> Dict[str, torch.Tensor]:
    batch = {}
    for suffix in ("", "_reverse"):
        targets = corpus.word_ids(batch_size, NUM_STEPS)  # (batch_size, NUM_STEPS)
        words = [[corpus.words[i] for i in row] for row in targets]
        batch[f"tokens{suffix}"] = batch_to_ids(words)  # (batch_size, NUM_STEPS, 50)
        batch[f"targets{suffix}"] = torch.from_numpy(targets)
    return batch


def _bytes_received() -> int:
    with open("/proc/net/dev", encoding="utf-8") as file:
        return int(next(re.findall(r"lo:\s*(\d+)", line)[0] for line in file if "lo:" in line))


def _peak_memory() -> float:
    with open("/proc/self/status", encoding="utf-8") as file:
        return int(re.findall(r"VmHWM:\s*(\d+)", file.read())[0]) * 1024 / 1e9


def table(measurements: List[Measurement]) -> str:
    lines = [
        "| model | vocabulary | processes | words/s | MB a step | peak GB a process |",
        "|---|---|---|---|---|---|",
    ]
    for one in measurements:
        lines.append(
            f"| {one.size} | {one.n_words:,} | {one.n_processes} | {one.words_per_second:,.0f} | "
            f"{one.bytes_per_step / 1e6:.1f} | {one.peak_memory:.2f} |"
        )
    return "\n".join(lines)


def _numbers(text: str) -> List[int]:
    return [int(number) for number in text.split(",")]


def main(arguments: List[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m speed.distributed", description=__doc__)
    parser.add_argument("--size", default="small", help="of the model (default small)")
    parser.add_argument("--vocabularies", type=_numbers, default=[10_000, 100_000, 800_000])
    parser.add_argument("--processes", type=_numbers, default=[1, 2, 4])
    parser.add_argument("--batch-size", type=int, default=128, help="of a process (default 128)")
    parser.add_argument("--samples", type=int, default=8192, help="negative (default 8192)")
    parser.add_argument("--steps", type=int, default=5, help="to measure (default 5)")
    parser.add_argument("--output", help="JSON file to write")
    args = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    measurements: List[Measurement] = []
    about = machine() if args.output else {}
    for n_words in args.vocabularies:
        for n_processes in args.processes:
            measurements.append(
                measure(args.size, n_words, n_processes, args.batch_size, args.samples, args.steps)
            )
            lines = table(measurements).splitlines()
            print("\n".join(lines if len(measurements) == 1 else lines[-1:]), flush=True)
            if args.output:
                write_json(args.output, measurements, about)


if __name__ == "__main__":
    main(sys.argv[1:])
