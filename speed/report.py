"""Time programs that take turns, and print the results as a table."""

import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch


def take_turns(programs: dict[str, Callable[[Any], Any]], items: Sequence[Any]) -> dict[str, float]:
    """
    Run all programs on each item in turn, so that a slow moment of the machine affects all of them.
    Return the median seconds per item of each program, without the first item, which is a warm-up.
    """
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for item in items:
        for name, program in programs.items():
            start = time.perf_counter()
            program(item)
            seconds[name].append(time.perf_counter() - start)
    return {name: median(values[1:]) for name, values in seconds.items()}


@dataclass
class Row:
    """
    A line of the table. `value` is the speed relative to AllenNLP's, unless the note says something
    else.
    """

    workload: str
    size: str
    value: float
    words_per_second: float | None = None
    baseline_words_per_second: float | None = None
    note: str = ""


HEADER = "| workload | model | value | words/s | AllenNLP's | |\n|---|---|---|---|---|---|"


def line(row: Row) -> str:
    """Return a row of the table."""
    cells = [row.workload, row.size, f"{row.value:.2f}"]
    for speed in (row.words_per_second, row.baseline_words_per_second):
        cells.append("" if speed is None else f"{speed:,.0f}")
    return f"| {' | '.join([*cells, row.note])} |"


def machine() -> dict[str, Any]:
    """Return what the figures depend on: processor, versions, threads, speed of torch.mm."""
    cpus = Path("/proc/cpuinfo").read_text("utf-8")
    return {
        "processor": ", ".join(set(re.findall(r"model name\s*:\s*(.+)", cpus))),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "GFLOP/s of torch.mm, float32": round(_product_rate(torch.float32)),
        "GFLOP/s of torch.mm, bfloat16": round(_product_rate(torch.bfloat16)),
    }


def _product_rate(dtype: torch.dtype, n: int = 1024) -> float:
    matrix = torch.randn(n, n).to(dtype)
    seconds = take_turns({"product": lambda _: matrix @ matrix}, range(9))["product"]
    return 2 * n**3 / seconds / 1e9
