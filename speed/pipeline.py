"""
`python -m speed.pipeline`: how fast training text is read, and with how much memory.

Writes a random text to a temporary folder, and reads it once, as training does, without a model, in
one thread. Prints what was measured up to each tenth of the text; with `--output`, writes it as
JSON.
"""

import argparse
import os
import re
import tempfile
import time
from dataclasses import dataclass
from typing import Iterator, List, Optional

import numpy
import torch
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from speed.report import machine, write_json
from speed.workload import Corpus

BATCH_SIZE, NUM_STEPS = 64, 20
_BLOCK_SENTENCES = 20_000


@dataclass
class Measurement:
    """
    What `measure` found.

    # Parameters

    n_words : `int`
        To predict in each direction, so far.
    words_per_second, words_per_cpu_second : `float`
        Of each direction. The second is right also on a machine with other work.
    memory : `float`
        Resident in the process, in MB (10^6 bytes).
    """

    n_words: int
    words_per_second: float
    words_per_cpu_second: float
    memory: float

    def __str__(self) -> str:
        return (
            f"{self.n_words:,} words: {self.words_per_second:,.0f} words/s, of CPU time "
            f"{self.words_per_cpu_second:,.0f} words/s, {self.memory:,.0f} MB"
        )


def write_text(path: str, corpus: Corpus, n_words: int) -> int:
    """Write sentences of `n_words` words or a few more, and return the number of words."""
    # By index: words in the middle of a line, then words at its end.
    words = [f"{word}{end}".encode() for end in " \n" for word in corpus.words]
    n_written = 0
    with open(path, "wb") as file:
        while n_written < n_words:
            lengths = corpus.lengths(_BLOCK_SENTENCES)
            ids = corpus.word_ids(lengths.sum())
            ids[numpy.cumsum(lengths) - 1] += len(corpus.words)
            file.write(b"".join(map(words.__getitem__, ids.tolist())))
            n_written += len(ids)
    return n_written


def measure(n_words: int, n_distinct: int, shuffle: bool = False) -> Iterator[Measurement]:
    """Yield what was measured up to each tenth of a text of `n_words`, and at its end."""
    corpus = Corpus(n_distinct)
    words = ["</S>", "<S>", "<UNK>", *dict.fromkeys(corpus.words)]
    vocabulary = Vocabulary(non_padded_namespaces=["lm_tokens"], tokens_to_add={"lm_tokens": words})
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "text")
        n_words = write_text(path, corpus, n_words)
        reader = TruncatedBpttLmReader(BATCH_SIZE, NUM_STEPS, shuffle_sentences=shuffle)
        loader = TruncatedBpttDataLoader(reader, path)
        loader.index_with(vocabulary)
        n_read, tenth = 0, 1
        wall, cpu = time.perf_counter(), time.process_time()

        def measured() -> Measurement:
            with open("/proc/self/status", encoding="utf-8") as file:
                memory = re.findall(r"VmRSS:\s*(\d+)", file.read())
            seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
            return Measurement(
                n_read, n_read / seconds, n_read / cpu_seconds, int(memory[0]) * 1024 / 1e6
            )

        for batch in loader:
            n_read += batch["targets"].numel()
            if n_read >= tenth * n_words / 10:
                tenth += 1
                yield measured()
        yield measured()


def main(args: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m speed.pipeline", description=__doc__)
    parser.add_argument("--words", type=int, default=100_000_000, help="of the text")
    parser.add_argument("--distinct", type=int, default=800_000, help="how many of them differ")
    parser.add_argument("--shuffle", action="store_true", help="shuffle the sentences")
    parser.add_argument("--output", help="JSON file to write")
    arguments = parser.parse_args(args)
    torch.set_num_threads(1)
    about = {"arguments": vars(arguments), **machine()}
    rows = []
    for row in measure(arguments.words, arguments.distinct, arguments.shuffle):
        rows.append(row)
        print(row, flush=True)
    if arguments.output:
        write_json(arguments.output, rows, about)


if __name__ == "__main__":
    main()
