"""
`python -m speed.pipeline`: how fast training text is read, and with how much memory.

Writes a random text to a temporary folder, and reads it once, as training does, without a model, in
one thread. Prints what was measured up to each tenth of the text.
"""

import argparse
import os
import tempfile
import time
from typing import List, Optional

import torch
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from speed.report import memory
from speed.workload import Corpus

_BLOCK_SENTENCES = 20_000


def main(args: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m speed.pipeline", description=__doc__)
    parser.add_argument("--words", type=int, default=100_000_000, help="of the text")
    parser.add_argument("--distinct", type=int, default=800_000, help="how many of them differ")
    parser.add_argument("--shuffle", action="store_true", help="shuffle the sentences")
    arguments = parser.parse_args(args)
    torch.set_num_threads(1)
    corpus = Corpus(arguments.distinct)
    words = ["</S>", "<S>", "<UNK>", *dict.fromkeys(corpus.words)]
    vocabulary = Vocabulary(non_padded_namespaces=["lm_tokens"], tokens_to_add={"lm_tokens": words})
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "text")
        n_words = 0
        with open(path, "w", encoding="utf-8") as file:
            while n_words < arguments.words:
                for sentence in corpus.sentences(_BLOCK_SENTENCES):
                    file.write(" ".join(sentence) + "\n")
                    n_words += len(sentence)
        reader = TruncatedBpttLmReader(64, 20, shuffle_sentences=arguments.shuffle)
        loader = TruncatedBpttDataLoader(reader, path)
        loader.index_with(vocabulary)
        n_read, tenth = 0, 1
        start = time.process_time()
        for batch in loader:
            n_read += batch["targets"].numel()
            if n_read >= tenth * n_words / 10:
                tenth += 1
                speed = n_read / (time.process_time() - start)
                print(
                    f"{n_read:,} words in each direction: {speed:,.0f} words/s of processor time, "
                    f"{1000 * memory('VmRSS'):,.0f} MB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
