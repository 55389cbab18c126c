"""
Show the results of the demo: how well the language model predicts held-out text, compared with a
unigram model.

    python scripts/demo_report.py OUTPUT_DIR
"""

import argparse
import json
import math
from pathlib import Path
from typing import Dict, List, Tuple

from allennlp_elmo_plugin.files.text_lines import open_lines


def read_sentences(path: Path) -> List[List[str]]:
    """Return the words of each line."""
    with open_lines(path) as lines:
        return [line.words for line in lines]


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


def print_results(folder: Path) -> None:
    """Print the table of perplexities."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("output", type=Path, metavar="OUTPUT_DIR", help="folder of the demo")
    args = parser.parse_args()
    print_results(args.output)


if __name__ == "__main__":
    main()
