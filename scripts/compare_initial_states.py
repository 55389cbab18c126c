"""
Measure what the initial state of a sentence changes: perplexity on held-out text, and the vectors
from call to call.

```
python scripts/compare_initial_states.py my_elmo my_test.txt
```

`my_elmo` is a folder that `allennlp elmo-export` has written, with its softmax; the text is
tokenised, one sentence a line.
"""

import argparse
import math
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple

import h5py
import torch

from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.files.text_lines import open_lines
from allennlp_elmo_plugin.modules.elmo import batch_to_ids
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm

WAYS = [("carried", 64), ("carried", 1), ("settled", 64), ("zero", 64)]
"""Initial states and batch sizes."""
N_FIRST = 5
"""Words from the start of a direction that also have separate figures."""


class Scores(NamedTuple):
    """
    Log probabilities of one direction: of all words and sentence ends, and of the first of each
    sentence; shapes `(n_words,)`.
    """

    every: torch.Tensor
    first: torch.Tensor


def read_sentences(path: Path, n_words: int) -> List[List[str]]:
    sentences: List[List[str]] = []
    count = 0
    with open_lines(path) as lines:
        for line in lines:
            if line.words:
                sentences.append(line.words)
                count += len(line.words)
            if count >= n_words:
                break
    return sentences


def read_softmax(elmo: Path) -> Tuple[Softmax, Dict[str, int]]:
    """Return the softmax and the row of each word in it."""
    words = read_vocabulary_file(elmo / "vocab.txt")
    with h5py.File(elmo / "softmax.hdf5", "r") as file:
        weight, bias = (torch.from_numpy(file[f"softmax/{name}"][...]) for name in ("W", "b"))
    softmax = Softmax(*weight.shape)
    softmax.weight.data, softmax.bias.data = weight, bias
    return softmax, {word: index for index, word in enumerate(words)}


def batches(sentences: List[List[str]], batch_size: int) -> Iterator[List[List[str]]]:
    for start in range(0, len(sentences), batch_size):
        yield sentences[start : start + batch_size]


def top_layers(bilm: ElmoBiLm, batch: List[List[str]]) -> torch.Tensor:
    """Return shape `(batch_size, timesteps + 2, 2 * dim)`, with sentence boundaries."""
    with torch.no_grad():
        return bilm(batch_to_ids(batch))["activations"][-1]


def score(
    bilm: ElmoBiLm,
    softmax: Softmax,
    ids: Dict[str, int],
    sentences: List[List[str]],
    batch_size: int,
) -> Tuple[Scores, Scores]:
    """Return the scores of the forward and the backward direction."""
    collected: Tuple[List[torch.Tensor], ...] = ([], [], [], [])
    for batch in batches(sentences, batch_size):
        for vectors, words in zip(top_layers(bilm, batch), batch):
            forward, backward = vectors[: len(words) + 2].chunk(2, dim=1)  # (n + 2, dim)
            targets = torch.tensor(
                [ids.get(word, ids["<UNK>"]) for word in ["<S>", *words, "</S>"]]
            )
            pairs = (
                (forward[:-1], targets[1:]),
                (backward[1:].flip(0), targets[:-1].flip(0)),
            )
            for direction, (hidden, target) in enumerate(pairs):
                scores = softmax.log_probabilities(hidden, target)  # (n + 1,)
                collected[2 * direction].append(scores)
                collected[2 * direction + 1].append(scores[:N_FIRST])
    every, first, every_back, first_back = (torch.cat(each) for each in collected)
    return Scores(every, first), Scores(every_back, first_back)


def perplexity(*scores: torch.Tensor) -> float:
    return math.exp(-sum(each.mean().item() for each in scores) / len(scores))


def changes(bilm: ElmoBiLm, sentences: List[List[str]]) -> Tuple[float, float]:
    """
    Embed the same sentences before and after others, and return the mean relative distance of the
    top vectors of all words, and of the first words.
    """
    half = len(sentences) // 2
    before = [top_layers(bilm, batch) for batch in batches(sentences[:64], 64)]
    for batch in batches(sentences[half:], 64):
        top_layers(bilm, batch)
    after = [top_layers(bilm, batch) for batch in batches(sentences[:64], 64)]
    every, first = [], []
    for a, b in zip(before, after):
        lengths = [len(words) for words in sentences[:64]]
        distance = (a - b).norm(dim=-1) / a.norm(dim=-1).clamp(min=1e-9)  # (batch_size, timesteps)
        every += [row[1 : n + 1] for row, n in zip(distance, lengths)]
        first += [row[1:2] for row in distance]
    return torch.cat(every).mean().item(), torch.cat(first).mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("elmo", type=Path, help="folder of an exported ELMo")
    parser.add_argument("text", type=Path, help="tokenised text, one sentence a line")
    parser.add_argument("--words", type=int, default=50000, help="words of it to read (50000)")
    arguments = parser.parse_args()
    sentences = read_sentences(arguments.text, arguments.words)
    softmax, ids = read_softmax(arguments.elmo)
    n_words = sum(len(words) for words in sentences)
    print(f"{len(sentences):,} sentences of {n_words / len(sentences):.1f} words on average")
    print(f"{'':22}perplexity             of the first {N_FIRST} words    change of vectors")
    print(f"{'':22}both  forward backward  forward backward    all words  first words")
    for initial_state, batch_size in WAYS:
        bilm = ElmoBiLm(str(arguments.elmo), None, initial_state=initial_state)
        bilm.eval()
        forward, backward = score(bilm, softmax, ids, sentences, batch_size)
        figures = [
            perplexity(forward.every, backward.every),
            *(perplexity(each.every) for each in (forward, backward)),
            *(perplexity(each.first) for each in (forward, backward)),
        ]
        all_words, first_words = changes(bilm, sentences)
        print(
            f"{initial_state + ', batches of ' + str(batch_size):22}"
            + "".join(f"{figure:8.1f}" for figure in figures)
            + f"{all_words:12.1%}{first_words:12.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
