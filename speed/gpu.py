"""
Embedding on a GPU, beside AllenNLP's modules on the same one, after a check that results are equal.

```
python -m speed.gpu
```
"""

import argparse
import functools
import tempfile
from typing import Any, List, Tuple

import torch

from allennlp_elmo_plugin import Elmo, batch_to_ids
from speed import original
from speed.report import take_turns
from speed.workload import Corpus, write_model

_BATCH_SIZES = (1, 32, 128)
_MAX_DIFFERENCE = 1e-4  # A GPU adds up in another order.


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m speed.gpu", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="times that each is run (default 5)")
    parser.add_argument("--sizes", default="small,original", help="models (default small,original)")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("torch finds no GPU")
    print(f"GPU: {torch.cuda.get_device_name()}; torch {torch.__version__}")
    print("| sentences | model | precision | AllenNLP | ours | ratio |")
    print("|---|---|---|---|---|---|")
    for size in args.sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            files = write_model(size, folder)
            theirs = original.Elmo(*files, 1, dropout=0.0).eval().cuda()
            for precision in ("float32", "bfloat16"):
                ours = Elmo(*files, 1, dropout=0.0, precision=precision, max_cached_words=0)
                for batch_size in _BATCH_SIZES:
                    row = _measure(ours.eval().cuda(), theirs, batch_size, args.rounds)
                    print(f"| {batch_size} | {size} | {precision} | {row} |", flush=True)


def _measure(ours: Any, theirs: Any, batch_size: int, rounds: int) -> str:
    batches = Corpus().batches(rounds + 1, batch_size)
    items = [(batch_to_ids(batch).cuda(), sum(map(len, batch))) for batch in batches]

    def run(model: Any, item: Tuple[torch.Tensor, int]) -> torch.Tensor:
        with torch.no_grad():
            output = model(item[0])["elmo_representations"][0]
        torch.cuda.synchronize()
        return output

    programs = {
        "AllenNLP": functools.partial(run, theirs),
        "ours": functools.partial(run, ours),
    }
    results = []
    for program in programs.values():
        theirs._elmo_lstm._elmo_lstm.reset_states()
        ours.bilm.lstm.reset_states()
        # As torch sets it, AllenNLP's convolutions round their inputs to 10 bits.
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            results.append(program(items[0]))
    if ours._elmo_lstm.precision == "float32":
        torch.testing.assert_close(*results, rtol=0, atol=_MAX_DIFFERENCE)
    seconds = take_turns(programs, items)
    n_words = sum(n for _, n in items[1:]) / rounds
    speeds = {name: n_words / each for name, each in seconds.items()}
    cells: List[str] = [f"{speed:,.0f}" for speed in speeds.values()]
    cells.append(f"{speeds['ours'] / speeds['AllenNLP']:.2f}")
    return " | ".join(cells)


if __name__ == "__main__":
    main()
