"""The tables and files of speed measurements."""

import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Optional, Sequence

import torch

from allennlp_elmo_plugin.files.whole import whole_file


@dataclass
class Row:
    """
    One line of the table.

    # Parameters

    workload, size : `str`
        The measured workload and model.
    value : `float`, optional
        The speed relative to the peer's: AllenNLP, unless the note says something else.
    bar : `float`, optional
        The value to reach.
    words_per_second, baseline_words_per_second : `float`, optional
        Ours and the peer's.
    floor_words_per_second : `float`, optional
        If the matrix products were all that takes time; see `speed.floor`.
    share_bar : `float`, optional
        The share of the floor to reach.
    note : `str`, optional
    """

    workload: str
    size: str
    value: Optional[float] = None
    bar: Optional[float] = None
    words_per_second: Optional[float] = None
    baseline_words_per_second: Optional[float] = None
    floor_words_per_second: Optional[float] = None
    share_bar: Optional[float] = None
    note: str = ""

    @property
    def share(self) -> Optional[float]:
        """Our words a second, relative to those of the floor."""
        if self.words_per_second is None or self.floor_words_per_second is None:
            return None
        return self.words_per_second / self.floor_words_per_second


def table(rows: List[Row]) -> str:
    lines = [
        "| workload | model | value | bar | words/s | the peer's words/s | of the floor | bar | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        speeds = [
            "" if speed is None else f"{speed:,.0f}"
            for speed in (row.words_per_second, row.baseline_words_per_second)
        ]
        value = "" if row.value is None else f"{row.value:.2f}"
        bar = "" if row.bar is None else f"{row.bar:g}"
        share = "" if row.share is None else f"{row.share:.0%}"
        share_bar = "" if row.share_bar is None else f"{row.share_bar:.0%}"
        cells = [row.workload, row.size, value, bar, *speeds, share, share_bar, row.note]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def machine() -> Dict[str, Any]:
    """Return what the figures depend on: processor, versions, threads, speed of torch.mm."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "GFLOP/s of torch.mm, float32": round(_product_rate(torch.float32)),
        "GFLOP/s of torch.mm, bfloat16": round(_product_rate(torch.bfloat16)),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.processor()


def _product_rate(dtype: torch.dtype, n: int = 1024) -> float:
    matrix = torch.randn(n, n).to(dtype)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best / 1e9


def write_json(path: str, rows: Sequence[Any], about: Dict[str, Any]) -> None:
    with whole_file(path) as staged, open(staged, "w", encoding="utf-8") as file:
        json.dump({"machine": about, "rows": [asdict(row) for row in rows]}, file, indent=2)
