"""
Show how well the demo's language model predicts held-out text, compared with a unigram model: the
frequencies of the training text, one added to each count.

    python scripts/demo_report.py OUTPUT_DIR
"""

import json
import math
import sys
from pathlib import Path
from typing import Dict, List, Tuple


def unigram_perplexity(
    counts: Dict[str, int], sentences: List[List[str]], end: str
) -> Tuple[float, float]:
    """
    Return the perplexity of the sentences' words and ends, and the share of <UNK> among them. `end`
    is the word after the last: `</S>` forward, `<S>` backward; the other one is never predicted.
    """
    start = "<S>" if end == "</S>" else "</S>"
    smoothed = {word: count + 1 for word, count in counts.items() if word != start}
    total = sum(smoothed.values())
    targets = [
        word if word in smoothed else "<UNK>" for words in sentences for word in [*words, end]
    ]
    loss = -sum(math.log(smoothed[word] / total) for word in targets) / len(targets)
    return math.exp(loss), targets.count("<UNK>") / len(targets)


def main() -> None:
    folder = Path(sys.argv[1])
    rows = (folder / "vocab" / "counts.tsv").read_text(encoding="utf-8").splitlines()
    counts = {word: int(count) for word, count in map(str.split, rows)}
    text = (folder / "corpus" / "heldout.txt").read_text(encoding="utf-8")
    sentences = [line.split() for line in text.splitlines()]
    metrics = json.loads((folder / "heldout.json").read_text(encoding="utf-8"))
    forward, unknown = unigram_perplexity(counts, sentences, "</S>")
    backward, _ = unigram_perplexity(counts, sentences, "<S>")
    ours = [metrics[f"{direction}_perplexity"] for direction in ("forward", "backward")]
    print("Perplexity on held-out text      forward  backward")
    print(f"  unigram model               {forward:10.1f}{backward:10.1f}")
    print(f"  bidirectional LSTM          {ours[0]:10.1f}{ours[1]:10.1f}")
    n_targets = sum(len(words) + 1 for words in sentences)
    print(
        f"of {n_targets:,} words and sentence ends in each direction, {100 * unknown:.1f}% of them "
        f"<UNK>; {len(counts):,} words in the vocabulary."
    )


if __name__ == "__main__":
    main()
