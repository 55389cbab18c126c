"""Times of several programs that take turns, so that a slow moment of the machine hits all."""

import time
from statistics import median
from typing import Any, Callable, Dict, Sequence


def take_turns(programs: Dict[str, Callable[[Any], Any]], items: Sequence[Any]) -> Dict[str, float]:
    """
    Run every program on every item, one after the other.

    # Parameters

    programs : `Dict[str, Callable]`
        By their names; each is called with an item.
    items : `Sequence`
        The first one is for warming up.

    # Returns

    `Dict[str, float]`
        For each program the median of its seconds an item.
    """
    seconds: Dict[str, list] = {name: [] for name in programs}
    for item in items:
        for name, program in programs.items():
            start = time.perf_counter()
            program(item)
            seconds[name].append(time.perf_counter() - start)
    return {name: median(values[1:]) for name, values in seconds.items()}
