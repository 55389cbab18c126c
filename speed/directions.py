"""
A thread for each direction of the language model, beside both directions in all threads: the LSTM
layers alone in embedding, after a check that results are equal. Batches too small for threads of
their own get them here as well.

```
python -m speed.directions
```
"""

import argparse
import tempfile
from typing import Any, Callable, Dict, Sequence

import torch

from allennlp_elmo_plugin.bilm.bilstm import BiLstm
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm
from speed.models import write_model
from speed.timing import take_turns
from speed.workload import Corpus

_BATCHES = [("64 sentences of random length", 64, None), ("64 x 25", 64, 25), ("16 x 25", 16, 25)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m speed.directions")
    parser.add_argument("--rounds", type=int, default=5, help="times that each is run (default 5)")
    parser.add_argument("--sizes", default="small,original", help="models (default small,original)")
    args = parser.parse_args()
    torch.set_num_threads(2)
    print("| batch | model | precision | together, words/s | a thread each, words/s | ratio |")
    print("|---|---|---|---|---|---|")
    for size in args.sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            files = write_model(size, folder)
            for precision in ("float32", "bfloat16"):
                bilm = ElmoBiLm(*files, initial_state="zero", precision=precision).eval()
                for name, n_sentences, length in _BATCHES:
                    row = _measure(bilm, n_sentences, length, args.rounds)
                    print(f"| {name} | {size} | {precision} | {row} |", flush=True)


def _measure(bilm: ElmoBiLm, n_sentences: int, length: Any, rounds: int) -> str:
    corpus = Corpus()
    lengths = corpus.lengths(n_sentences) if length is None else [length] * n_sentences
    n_words = sum(lengths)
    vectors, packing = bilm._embed_words([["word"] * (n + 2) for n in lengths])
    vectors = torch.randn_like(vectors)

    def run(threads: bool) -> Callable[[Any], torch.Tensor]:
        def call(_: Any) -> torch.Tensor:
            BiLstm._are_worth_threads = lambda *_: threads  # type: ignore[method-assign]
            with torch.no_grad():
                output = bilm.run(vectors, packing)
            return torch.cat([each for layers in output.layers.values() for each in layers])

        return call

    programs = {"together": run(False), "threads": run(True)}
    together, threads = (program(None) for program in programs.values())
    torch.testing.assert_close(threads, together, rtol=0, atol=1e-6)
    return _speeds(programs, range(rounds + 1), n_words)


def _speeds(programs: Dict[str, Callable[[Any], Any]], items: Sequence[Any], n_words: int) -> str:
    seconds = take_turns(programs, items)
    speeds = [n_words / seconds[name] for name in programs]
    return f"{speeds[0]:,.0f} | {speeds[1]:,.0f} | {speeds[1] / speeds[0]:.2f}"


if __name__ == "__main__":
    main()
