"""
Measure every workload on this machine, beside AllenNLP's modules. Prints a table, and writes it as
JSON with `--output`.
"""

import argparse
import json
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from speed import commands, embedding, onnx_file, training
from speed.report import HEADER, Row, line, machine
from speed.workload import write_model


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m speed", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each workload (default 5)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default 2)")
    parser.add_argument("--sizes", default="small,original", help="models (default small,original)")
    parser.add_argument("--only", default="", help="regular expression of the workloads to run")
    parser.add_argument("--output", help="JSON file to write")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)

    rows: list[Row] = []
    about = machine()
    for key, value in about.items():
        print(f"{key}: {value}")
    print(HEADER)
    for row in measure(args.sizes.split(","), args.rounds, re.compile(args.only).search):
        rows.append(row)
        print(line(row), flush=True)
        if args.output:
            content = {"machine": about, "rows": list(map(asdict, rows))}
            Path(args.output).write_text(json.dumps(content, indent=2), encoding="utf-8")


def measure(sizes: list[str], rounds: int, select: Callable[[str], Any]) -> Iterator[Row]:
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            files = write_model(size, folder)
            for part in (embedding, training, commands):
                yield from part.measure(size, *files, rounds, select)
            yield from onnx_file.measure(folder, size, rounds, select)
    yield from onnx_file.measure("tiny", "`tiny`", rounds, select)
    if select("start-up"):
        yield commands.measure_start(rounds)


if __name__ == "__main__":
    main()
