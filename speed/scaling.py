"""
`python -m speed.scaling`: a model of distributed training, which predicts words/s.

A step takes the time of its products, that of starting its kernels one after the other, and that of
the exchange of gradients, which overlaps with nothing here. `--measured` compares it with what
`python -m speed.distributed --output` wrote.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from typing import Any, Dict, List, NamedTuple

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from allennlp_elmo_plugin import BiLmOptions
from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler
from speed.models import write_model

NUM_STEPS = 20
N_SAMPLES = 8192
# Of the 1 Billion Word Benchmark: bilm-tf's training read it ten times.
ORIGINAL_WORDS = 10 * 768_648_884
ORIGINAL_VOCABULARY = 793_471


class Device(NamedTuple):
    """
    A GPU and its links.

    # Parameters

    name : `str`
    flops : `float`
        Floating point operations a second that products reach.
    link, network : `float`
        Bytes a second that a process sends to others of its machine, and to another machine.
    kernel_seconds : `float`
        From one kernel to the next that depends on it.
    """

    name: str
    flops: float
    link: float
    network: float
    kernel_seconds: float = 7e-6


# Vendors' peaks; 40% of them are an assumption, as are the links' rates.
DEVICES = [
    Device("GTX 1080, float32", 0.4 * 8.9e12, 8e9, 1e9),
    Device("H100, float32 (TF32 off)", 0.4 * 67e12, 300e9, 40e9),
    Device("H100, bfloat16", 0.4 * 989e12, 300e9, 40e9),
]
PROCESSES_OF_A_MACHINE = 8
# Of a step of the recurrence in a layer, both directions together, forward.
KERNELS_OF_A_STEP = 12


def operations_of_a_word(options: BiLmOptions, n_samples: int) -> float:
    """Return the floating point operations of training for a word, in both directions together."""
    dim, cells = options.projection_dim, options.lstm_dim
    products = 2.0 * options.n_layers * (4 * cells * 2 * dim + cells * dim)
    products += 2 * n_samples * dim
    char_cnn = options.char_cnn
    if char_cnn is not None:
        n_filters = char_cnn.n_filters
        products += 2 * sum(
            width * char_cnn.embedding_dim * number * (char_cnn.max_characters_per_token - width)
            for width, number in char_cnn.filters
        )
        products += 2 * (char_cnn.n_highway * 2 * n_filters**2 + n_filters * dim)
    # A multiplication and an addition; the backward pass has two products for each.
    return 2 * 3 * products


def dense_parameters(options: BiLmOptions) -> int:
    """Return the number of parameters without the softmax."""
    from allennlp_elmo_plugin import BiLm

    return sum(parameter.numel() for parameter in BiLm(options, device="meta").parameters())


def bytes_of_a_step(
    options: BiLmOptions, n_words: int, n_processes: int, batch_size: int, n_samples: int
) -> float:
    """
    Return how many bytes a process sends in a step: all gradients but the softmax's, the numbers of
    the softmax's rows that it has a gradient for, and the gradients of all processes' rows.
    """
    share = 2 * (n_processes - 1) / n_processes  # of a tensor, in a ring
    ids = torch.arange(n_words)
    n_tries = _number_of_tries(n_words, n_samples)
    drawn = LogUniformSampler(n_words, n_samples).expected_count(ids, n_tries).numpy()
    zipf = 1 / (1.0 + numpy.arange(n_words))
    n_targets = batch_size * NUM_STEPS
    is_left = (1 - drawn) * (1 - zipf / zipf.sum()) ** n_targets  # by one direction
    own_rows, rows = ((1 - is_left ** (2 * n)).sum() for n in (1, n_processes))
    values = 4 * (dense_parameters(options) + rows * (options.projection_dim + 1))
    return share * values + 8 * (n_processes - 1) * own_rows


def _number_of_tries(n_words: int, n_samples: int) -> int:
    torch.manual_seed(0)
    return LogUniformSampler(n_words, n_samples).sample().num_tries


def predict(
    device: Device, options: BiLmOptions, n_processes: int, batch_size: int
) -> Dict[str, float]:
    """
    Return the seconds of the parts of a step of the original's training with so many GPUs, up to
    eight a machine.
    """
    n_words = batch_size * NUM_STEPS
    seconds = {
        "products": n_words * operations_of_a_word(options, N_SAMPLES) / device.flops,
        "starting kernels": 3
        * NUM_STEPS
        * options.n_layers
        * KERNELS_OF_A_STEP
        * device.kernel_seconds,
    }
    if n_processes > 1:
        link = device.link if n_processes <= PROCESSES_OF_A_MACHINE else device.network
        n_bytes = bytes_of_a_step(options, ORIGINAL_VOCABULARY, n_processes, batch_size, N_SAMPLES)
        seconds["exchange"] = n_bytes / link
    return seconds


def _run(rank: int, folder: str, n_processes: int, results: Any) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", f"file://{folder}/rendezvous", world_size=n_processes, rank=rank
    )
    matrix = torch.randn(1024, 1024)
    buffer = torch.randn(2**23)
    matrix @ matrix
    dist.all_reduce(buffer)
    start = time.perf_counter()
    for _ in range(30):
        matrix @ matrix
    products = time.perf_counter() - start
    dist.barrier()
    start = time.perf_counter()
    for _ in range(5):
        dist.all_reduce(buffer)
    exchange = (time.perf_counter() - start) / 5
    results.put((products, 4 * len(buffer) * 2 * (n_processes - 1) / n_processes / exchange))


def measure_machine(n_processes: int) -> List[float]:
    """
    Return the seconds of some products when so many processes make them at once, and the bytes a
    second that each sends to the others.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(_run, (folder, n_processes, results), n_processes, start_method="fork")
        return [max(pair) for pair in zip(*(results.get() for _ in range(n_processes)))]


def compare(measurements: List[Dict[str, Any]], batch_size: int, n_samples: int) -> None:
    """Print predictions from the speed of one process, beside what was measured."""
    machines = {n: measure_machine(n) for n in sorted({m["n_processes"] for m in measurements})}
    print(
        "| model | vocabulary | processes | words/s, predicted | measured | MB a step, predicted "
        "| measured |\n|---|---|---|---|---|---|---|"
    )
    alone: Dict[Any, Dict[str, Any]] = {}
    for one in measurements:
        n, key = one["n_processes"], (one["size"], one["n_words"])
        if n == 1:
            alone[key] = one
            continue
        options = _options(one["size"])
        products, rate = machines[n]
        n_bytes = bytes_of_a_step(options, one["n_words"], n, batch_size, n_samples)
        n_tokens = batch_size * NUM_STEPS
        seconds = n_tokens / alone[key]["words_per_second"] * products / machines[1][0]
        words_per_second = n * n_tokens / (seconds + n_bytes / rate)
        print(
            f"| {one['size']} | {one['n_words']:,} | {n} | {words_per_second:,.0f} | "
            f"{one['words_per_second']:,.0f} | {n_bytes / 1e6:.1f} | "
            f"{one['bytes_per_step'] / 1e6:.1f} |"
        )


def _options(size: str) -> BiLmOptions:
    with tempfile.TemporaryDirectory() as folder:
        return BiLmOptions.from_file(write_model(size, folder)[0])


def main(arguments: List[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m speed.scaling", description=__doc__)
    parser.add_argument("--measured", help="JSON file of speed.distributed, to compare with")
    parser.add_argument("--batch-size", type=int, default=128, help="of a process (default 128)")
    args = parser.parse_args(arguments)
    if args.measured:
        with open(args.measured, encoding="utf-8") as file:
            compare(json.load(file)["rows"], args.batch_size, N_SAMPLES)
        return
    options = _options("original")
    print(
        f"{operations_of_a_word(options, N_SAMPLES) / 1e6:,.0f} million operations a word, "
        f"{4 * dense_parameters(options) / 1e6:,.0f} MB of dense gradients, "
        f"{bytes_of_a_step(options, ORIGINAL_VOCABULARY, 2, 128, N_SAMPLES) / 1e6:,.0f} MB sent "
        "by each of two processes in a step"
    )
    print("| device | processes | words/s | days | most time |\n|---|---|---|---|---|")
    for device in DEVICES:
        for n_processes in (1, 3, 8, 64):
            seconds = predict(device, options, n_processes, args.batch_size)
            total = sum(seconds.values())
            rate = n_processes * args.batch_size * NUM_STEPS / total
            most = max(seconds, key=seconds.__getitem__)
            print(
                f"| {device.name} | {n_processes} | {rate:,.0f} | "
                f"{ORIGINAL_WORDS / rate / 86400:.2f} | {most}, {seconds[most] / total:.0%} |"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
