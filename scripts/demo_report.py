"""
Show the results of the demo: how well the language model predicts held-out text, compared with a
unigram model, and which uses of a word it considers similar.

    python scripts/demo_report.py sentences OUTPUT_DIR    writes sentences.txt, for `allennlp elmo`
    python scripts/demo_report.py results OUTPUT_DIR      prints the results
"""

import argparse
import json
import math
from pathlib import Path
from typing import Dict, List, Tuple

import h5py
import numpy as np

from allennlp_elmo_plugin.files.text_lines import open_lines
from allennlp_elmo_plugin.files.whole_file import whole_file

WORD = "set"
QUERIES = [
    "A set is an unordered collection of hashable objects .",
    "The attribute is set to None .",
]
"""One sentence for each sense of the word. They are not in the text."""

N_NEIGHBOURS = 5
N_CONTEXT = 6
"""Words to show on each side of a neighbour."""


def read_sentences(path: Path) -> List[List[str]]:
    """Return the words of each line."""
    with open_lines(path) as lines:
        return [line.words for line in lines]


def write_sentences(folder: Path) -> None:
    """Write the queries, then all sentences of the corpus that have the word."""
    lines = list(QUERIES)
    for part in ("train", "validation", "heldout"):
        sentences = read_sentences(folder / "corpus" / f"{part}.txt")
        lines += [" ".join(words) for words in sentences if WORD in words]
    text = "".join(f"{line}\n" for line in lines)
    with whole_file(folder / "sentences.txt") as staged:
        Path(staged).write_text(text, encoding="utf-8")
    print(f"{folder / 'sentences.txt'}: {len(lines):,} sentences")


def read_counts(path: Path) -> Dict[str, int]:
    """Return what `allennlp elmo-vocab` counted, by word."""
    with open_lines(path) as lines:
        return {word: int(count) for word, count in (line.words for line in lines)}


def unigram_perplexity(
    counts: Dict[str, int], sentences: List[List[str]], end: str = "</S>"
) -> Tuple[float, float]:
    """
    Return the perplexity of the sentences' words and ends under the relative frequencies of the
    training text, one added to each count, and the share of <UNK> among them. `end` is the word
    after the last: `</S>` forward, `<S>` backward; the other one is never predicted.
    """
    start = "<S>" if end == "</S>" else "</S>"
    smoothed = {word: count + 1 for word, count in counts.items() if word != start}
    total = sum(smoothed.values())
    targets = [
        word if word in smoothed else "<UNK>" for words in sentences for word in [*words, end]
    ]
    loss = -sum(math.log(smoothed[word] / total) for word in targets) / len(targets)
    return math.exp(loss), targets.count("<UNK>") / len(targets)


def neighbours(folder: Path) -> List[Tuple[str, List[Tuple[float, str]]]]:
    """Return each query with the uses of the word nearest to it: cosine and context."""
    sentences = read_sentences(folder / "sentences.txt")
    vectors, contexts, queries = [], [], []
    with h5py.File(folder / "layers.hdf5", "r") as layers:
        for number, words in enumerate(sentences):
            array = layers[str(number)][...]  # (tokens, dim)
            for position in [i for i, word in enumerate(words) if word == WORD]:
                vector = array[position] / np.linalg.norm(array[position])  # (dim,)
                if number < len(QUERIES):
                    queries.append(vector)
                    continue
                vectors.append(vector)
                before = " ".join(words[max(0, position - N_CONTEXT) : position])
                after = " ".join(words[position + 1 : position + 1 + N_CONTEXT])
                contexts.append(f"{before[-40:]:>40} [{WORD}] {after}")
    found = []
    for query, vector in zip(QUERIES, queries):
        cosines = np.stack(vectors) @ vector  # (uses,)
        nearest = np.argsort(-cosines, kind="stable")[:N_NEIGHBOURS]
        found.append((query, [(float(cosines[i]), contexts[i]) for i in nearest]))
    return found


def print_results(folder: Path) -> None:
    """Print the table of perplexities and the neighbours."""
    counts = read_counts(folder / "vocab" / "counts.tsv")
    sentences = read_sentences(folder / "corpus" / "heldout.txt")
    metrics = json.loads((folder / "heldout.json").read_text(encoding="utf-8"))
    forward, unknown = unigram_perplexity(counts, sentences, "</S>")
    backward, _ = unigram_perplexity(counts, sentences, "<S>")
    n_targets = sum(len(words) + 1 for words in sentences)

    print("Perplexity on held-out text      forward  backward")
    print(f"  unigram model               {forward:10.1f}{backward:10.1f}")
    print(
        f"  bidirectional LSTM          {metrics['forward_perplexity']:10.1f}"
        f"{metrics['backward_perplexity']:10.1f}"
    )
    print(
        f"of {n_targets:,} words and sentence ends in each direction, {100 * unknown:.1f}% of them "
        f"<UNK>; {len(counts):,} words in\nthe vocabulary. The unigram model has the frequencies "
        "of the training text, one added to each count."
    )
    print(f'\nThe word "{WORD}" in context: the uses in the text nearest to it, by cosine')
    for query, nearest in neighbours(folder):
        print(f"\n  {query}")
        for cosine, context in nearest:
            print(f"    {cosine:.2f}  {context}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("action", choices=["sentences", "results"])
    parser.add_argument("output", type=Path, metavar="OUTPUT_DIR", help="folder of the demo")
    args = parser.parse_args()
    if args.action == "sentences":
        write_sentences(args.output)
    else:
        print_results(args.output)


if __name__ == "__main__":
    main()
