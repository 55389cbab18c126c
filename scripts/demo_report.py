"""
Show how well the demo's language model predicts held-out text, compared with a unigram model (word
counts of the training text, plus one). List the demo's files and what to try next.

    python scripts/demo_report.py OUTPUT_DIR
"""

import json
import math
import os
import sys
from pathlib import Path


def main() -> None:
    folder = Path(sys.argv[1])
    rows = (folder / "vocab" / "counts.tsv").read_text(encoding="utf-8").splitlines()
    counts = {word: int(count) + 1 for word, count in map(str.split, rows)}
    text = (folder / "corpus" / "heldout.txt").read_text(encoding="utf-8")
    words = [word for line in text.splitlines() for word in [*line.split(), "</S>"]]
    words = [word if word in counts else "<UNK>" for word in words]
    total = sum(counts.values()) - counts["<S>"]  # which a forward model never predicts
    unigram = math.exp(-sum(math.log(counts[word] / total) for word in words) / len(words))
    metrics = json.loads((folder / "heldout.json").read_text(encoding="utf-8"))
    print("Perplexity on held-out text      forward  backward")
    print(f"  unigram model               {unigram:10.1f}{unigram:10.1f}")
    print(
        f"  bidirectional LSTM          {metrics['forward_perplexity']:10.1f}"
        f"{metrics['backward_perplexity']:10.1f}"
    )
    print(f"of {len(words):,} words and sentence ends; {len(counts):,} words in the vocabulary.")
    print(
        f"""
{folder}/model/model.tar.gz   the trained language model, to evaluate or fine-tune
{folder}/elmo                 the same as an ELMo, a folder that other programs can read, too
{folder}/layers.hdf5          the vectors of the held-out text

Try next, after `source {os.path.relpath(sys.prefix)}/bin/activate`:
  allennlp elmo-plot map set {folder}/corpus --options-file {folder}/elmo -o map.html
  python -c 'from allennlp_elmo_plugin import ElmoEmbedder
print(ElmoEmbedder("{folder}/elmo").embed_sentence(["A", "sentence", "."]).shape)'
Then train a tagger with ELMo, or an ELMo on your own text: steps 2 and 3 of README.md."""
    )


if __name__ == "__main__":
    main()
