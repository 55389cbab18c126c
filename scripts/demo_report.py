"""
Show how well the demo's language model predicts held-out text, compared with a unigram model (word
counts of the training text, plus one). List the demo's files and what to try next.

    python scripts/demo_report.py OUTPUT_DIR
"""

import math
import os
import re
import sys
from collections import Counter
from pathlib import Path


def main() -> None:
    folder = Path(sys.argv[1])
    vocabulary = (folder / "elmo" / "vocab.txt").read_text(encoding="utf-8").split()
    texts = []
    for name in ("train", "heldout"):
        text = (folder / "corpus" / f"{name}.txt").read_text(encoding="utf-8")
        words = [word for line in text.splitlines() for word in [*line.split(), "</S>"]]
        known = set(vocabulary)
        texts.append([word if word in known else "<UNK>" for word in words])
    train, words = texts
    counts = Counter(vocabulary) + Counter(train)
    total = counts.total() - counts["<S>"]  # which a forward model never predicts
    unigram = math.exp(-sum(math.log(counts[word] / total) for word in words) / len(words))
    table = (folder / "heldout.txt").read_text(encoding="utf-8")
    forward, backward = (
        float(re.search(rf"{name}_perplexity +([\d.,]+)", table)[1].replace(",", ""))
        for name in ("forward", "backward")
    )
    print("Perplexity on held-out text      forward  backward")
    print(f"  unigram model               {unigram:10.1f}{unigram:10.1f}")
    print(f"  bidirectional LSTM          {forward:10.1f}{backward:10.1f}")
    print(f"of {len(words):,} words and sentence ends; {len(counts):,} words in the vocabulary.")
    print(
        f"""
{folder}/elmo          the ELMo, to use, measure or train further; other programs read it, too
{folder}/layers.hdf5   the vectors of the held-out text

Try next, after `source {os.path.relpath(sys.prefix)}/bin/activate`:
  allennlp elmo-plot map set {folder}/corpus --model {folder}/elmo -o map.html
  python -c 'from allennlp_elmo_plugin import ElmoEmbedder
print(ElmoEmbedder("{folder}/elmo").embed_sentence(["A", "sentence", "."]).shape)'
Then train a tagger with ELMo, or an ELMo on your own text: steps 2 and 3 of README.md."""
    )


if __name__ == "__main__":
    main()
