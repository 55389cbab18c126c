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
    sentences = [line.split() for line in text.splitlines()]
    metrics = json.loads((folder / "heldout.json").read_text(encoding="utf-8"))
    unigram = []
    # The forward direction never predicts the start of a sentence, the backward one never the end.
    for start, end in (("<S>", "</S>"), ("</S>", "<S>")):
        targets = [word for words in sentences for word in [*words, end]]
        targets = [word if word in counts else "<UNK>" for word in targets]
        total = sum(counts.values()) - counts[start]
        loss = -sum(math.log(counts[word] / total) for word in targets) / len(targets)
        unigram.append(math.exp(loss))
    ours = [metrics[f"{direction}_perplexity"] for direction in ("forward", "backward")]
    print("Perplexity on held-out text      forward  backward")
    print(f"  unigram model               {unigram[0]:10.1f}{unigram[1]:10.1f}")
    print(f"  bidirectional LSTM          {ours[0]:10.1f}{ours[1]:10.1f}")
    print(
        f"of {len(targets):,} words and sentence ends in each direction, "
        f"{100 * targets.count('<UNK>') / len(targets):.1f}% of them <UNK>; {len(counts):,} words "
        "in the vocabulary."
    )


if __name__ == "__main__":
    main()
