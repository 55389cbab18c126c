"""
`python -m speed.distributed`: steps of distributed training on this machine's CPUs, by vocabulary
and number of processes: words/s, bytes that each process sends in a step, and its peak memory.

Bytes are counted at the loopback interface, which nothing else should use meanwhile.
"""

import argparse
import logging
import os
import re
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any, Dict, List, Optional

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from allennlp.data import Vocabulary

from allennlp_elmo_plugin import BiLmOptions, batch_to_ids
from allennlp_elmo_plugin.data.vocabulary import LM_NAMESPACE
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.training.sparse_ddp_accelerator import (
    SparseDdpAccelerator,
    SparseDdpWrappedModel,
)
from speed.report import memory
from speed.workload import Corpus, write_model

NUM_STEPS = 20


def measure(args: argparse.Namespace, n_words: int, n_processes: int) -> str:
    """Train a random model in so many processes, and return a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        options = BiLmOptions.from_file(write_model(args.size, folder)[0])
        words = ["</S>", "<S>", "<UNK>", *(f"word{index}" for index in range(3, n_words))]
        vocabulary = Vocabulary(
            non_padded_namespaces=[LM_NAMESPACE], tokens_to_add={LM_NAMESPACE: words}
        )
        results = mp.get_context("fork").SimpleQueue()
        arguments = (folder, options, vocabulary, n_processes, args, results)
        mp.start_processes(_train, arguments, n_processes, start_method="fork")
        seconds, n_bytes, peaks = zip(*(results.get() for _ in range(n_processes)))
    speed = n_processes * args.batch_size * NUM_STEPS / max(seconds)
    # What one process sends, another receives: the interface counts it once.
    sent = max(n_bytes) / args.steps / n_processes
    return (
        f"| {args.size} | {n_words:,} | {n_processes} | {speed:,.0f} | {sent / 1e6:.1f} | "
        f"{max(peaks):.2f} |"
    )


def _train(
    rank: int,
    folder: str,
    options: BiLmOptions,
    vocabulary: Vocabulary,
    n_processes: int,
    args: argparse.Namespace,
    results: Any,
) -> None:
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    module: Any = BidirectionalLanguageModel(
        vocabulary, options=options.to_dict(), num_samples=args.samples
    )
    model, wrapped = module, None
    if n_processes > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        method = f"file://{folder}/rendezvous"
        dist.init_process_group("gloo", method, world_size=n_processes, rank=rank)
        accelerator = SparseDdpAccelerator(
            local_rank=rank, world_size=n_processes, cuda_device=torch.device("cpu")
        )
        module, wrapped = accelerator.wrap_model(module)
        model = wrapped.model  # type: ignore[union-attr]
    optimizer = torch.optim.Adagrad(
        module.parameters(), lr=0.2, initial_accumulator_value=1.0, eps=0.0
    )
    corpus = Corpus(vocabulary.get_vocab_size(LM_NAMESPACE), seed=rank)
    seconds: List[float] = []
    n_bytes = 0
    for step in range(args.steps + 1):
        batch = _batch(corpus, args.batch_size)
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
    results.put((median(seconds), n_bytes, memory("VmHWM")))


def _batch(corpus: Corpus, batch_size: int) -> Dict[str, torch.Tensor]:
    batch = {}
    for suffix in ("", "_reverse"):
        targets = corpus.word_ids(batch_size, NUM_STEPS)  # (batch_size, NUM_STEPS)
        words = [[corpus.words[i] for i in row] for row in targets]
        batch[f"tokens{suffix}"] = batch_to_ids(words)  # (batch_size, NUM_STEPS, 50)
        batch[f"targets{suffix}"] = torch.from_numpy(targets)
    return batch


def _bytes_received() -> int:
    found = re.search(r"lo:\s*(\d+)", Path("/proc/net/dev").read_text())
    assert found is not None
    return int(found[1])


def _numbers(text: str) -> List[int]:
    return [int(number) for number in text.split(",")]


def main(arguments: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m speed.distributed", description=__doc__)
    parser.add_argument("--size", default="small", help="of the model (default small)")
    parser.add_argument("--vocabularies", type=_numbers, default=[10_000, 100_000, 800_000])
    parser.add_argument("--processes", type=_numbers, default=[1, 2, 4])
    parser.add_argument("--batch-size", type=int, default=128, help="of a process (default 128)")
    parser.add_argument("--samples", type=int, default=8192, help="negative (default 8192)")
    parser.add_argument("--steps", type=int, default=5, help="to measure (default 5)")
    args = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    print("| model | vocabulary | processes | words/s | MB a step | peak GB a process |")
    print("|---|---|---|---|---|---|")
    for n_words in args.vocabularies:
        for n_processes in args.processes:
            print(measure(args, n_words, n_processes), flush=True)


if __name__ == "__main__":
    main()
