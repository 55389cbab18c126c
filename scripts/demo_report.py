"""
Show how well the demo's language model predicts held-out text, compared with a unigram model: the
frequencies of the training text, one added to each count.

    python scripts/demo_report.py OUTPUT_DIR
"""

import json
import math
import sys
from pathlib import Path


def main() -> None:
    folder = Path(sys.argv[1])
    rows = (folder / "vocab" / "counts.tsv").read_text(encoding="utf-8").splitlines()
    counts = {word: int(count) + 1 for word, count in map(str.split, rows)}
    text = (folder / "corpus" / "heldout.txt").read_text(encoding="utf-8")
    words = [word for line in text.splitlines() for word in [*line.split(), "</S>"]]
    words = [word if word in counts else "<UNK>" for word in words]
    total = sum(counts.values()) - counts["<S>"]  # A forward model never predicts it.
    unigram = math.exp(-sum(math.log(counts[word] / total) for word in words) / len(words))
    metrics = json.loads((folder / "heldout.json").read_text(encoding="utf-8"))
    print("Perplexity on held-out text      forward  backward")
    print(f"  unigram model               {unigram:10.1f}{unigram:10.1f}")
    print(
        f"  bidirectional LSTM          {metrics['forward_perplexity']:10.1f}"
        f"{metrics['backward_perplexity']:10.1f}"
    )
    print(
        f"of {len(words):,} words and sentence ends, {words.count('<UNK>') / len(words):.1%} of "
        f"them <UNK>; {len(counts):,} words in the vocabulary."
    )


if __name__ == "__main__":
    main()
