"""
`python -m speed`: every workload, on this machine, beside AllenNLP's modules.

Prints a table, and with `--output` writes it as JSON. Needs 12 GB of memory.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from typing import Iterator, List

import torch

from speed import bilm_tf, commands, embedding, training
from speed.models import write_model
from speed.report import Row, machine, table, write_json

_KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m speed", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="times that each is run (default 5)")
    parser.add_argument("--threads", type=int, default=2, help="of torch (default 2)")
    parser.add_argument("--sizes", default="small,original", help="models (default small,original)")
    parser.add_argument("--only", default="", help="regular expression: workloads to run")
    parser.add_argument("--bilm-tf", help="bilm-tf's repository, to measure it in turns with ours")
    parser.add_argument("--tensorflow", help="the Python with TensorFlow 2.15 and h5py for it")
    parser.add_argument("--output", help="JSON file to write")
    parser.add_argument("--rows-only", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if bool(args.bilm_tf) != bool(args.tensorflow):
        parser.error("--bilm-tf and --tensorflow go together")
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)
    rows: List[Row] = []
    about = {} if args.rows_only else machine()
    for key, value in about.items():
        print(f"{key}: {value}")
    for row in measure(args):
        rows.append(row)
        lines = table(rows).splitlines()
        print("\n".join(lines if len(rows) == 1 else lines[-1:]), flush=True)
        if args.output:
            write_json(args.output, rows, about)


def measure(args: argparse.Namespace) -> Iterator[Row]:
    def select(name: str) -> bool:
        return re.search(args.only, name) is not None

    sizes = args.sizes.split(",")
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for size in {*sizes, *(["small-512"] if "small" in sizes else [])}:
            os.mkdir(os.path.join(folder, size))
            files[size] = write_model(size, os.path.join(folder, size))
        for size in sizes:
            yield from embedding.measure(size, *files[size], args.rounds, select)
        for size in sizes:
            yield from training.measure(size, *files[size], args.rounds, select)
        for size in sizes:
            yield from commands.measure(size, *files[size], select)
        if select("bilm-tf"):
            peer = bilm_tf.BilmTf(args.bilm_tf, args.tensorflow) if args.bilm_tf else None
            yield from bilm_tf.measure(files, args.rounds, peer)
    if select("start-up"):
        yield commands.measure_start(args.rounds)
    if select("memory kept") and not args.rows_only:
        yield from _with_kept_memory(args)


def _with_kept_memory(args: argparse.Namespace) -> Iterator[Row]:
    """
    Measure the first rows again in a process that keeps its memory, so that neither side loses time
    to page faults.
    """
    bars = {
        ("random batches", "small"): 6.6,
        ("random batches", "original"): 2.0,
        ("training step", "small"): 2.7,
        ("training step", "original"): 2.2,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.json")
        arguments = ["--rows-only", "--only", "^random batches$|^training step$"]
        arguments += ["--rounds", str(args.rounds), "--threads", str(args.threads)]
        arguments += ["--sizes", args.sizes, "--output", path]
        subprocess.run(
            [sys.executable, "-m", "speed", *arguments],
            env={**os.environ, **_KEPT_MEMORY},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with open(path, encoding="utf-8") as file:
            for values in json.load(file)["rows"]:
                row = Row(**values)
                row.bar = bars.get((row.workload, row.size))
                row.workload += ", memory kept"
                yield row


if __name__ == "__main__":
    main()
