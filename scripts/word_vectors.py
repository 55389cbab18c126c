"""
Train word vectors on the text of an ELMo, to compare both in `allennlp elmo-benchmark`.

    python scripts/word_vectors.py text.txt vectors.txt

reads one sentence from each line, words separated by spaces, and writes GloVe's format: on each
line a word in lower case and its numbers. gensim trains word2vec (skip-gram, 5 negative samples,
window 5): `pip install gensim`. The same text, seed and version of gensim give the same file.
gensim reads the first 10,000 words of a sentence.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from allennlp_elmo_plugin.exits import run_script
from allennlp_elmo_plugin.files.atomic import atomic_file
from allennlp_elmo_plugin.text.lines import open_lines


class Sentences:
    """The sentences of a text in lower case, like the words of the benchmark's embeddings."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[list[str]]:
        with open_lines(self.path) as text:
            for line in text:
                yield [word.lower() for word in line.words]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("text", type=Path, help="tokenised text, may be compressed (gzip)")
    parser.add_argument("output", type=Path, help="file to write")
    parser.add_argument("--dim", type=int, default=100, help="dimensions of a word")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the text")
    parser.add_argument("--min-count", type=int, default=5, help="rarer words get no vector")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    from gensim.models import Word2Vec

    model = Word2Vec(
        Sentences(arguments.text),
        sg=1,
        vector_size=arguments.dim,
        window=5,
        negative=5,
        min_count=arguments.min_count,
        epochs=arguments.epochs,
        seed=arguments.seed,
        workers=1,  # With more, the order of the updates is random.
    )
    with atomic_file(arguments.output) as staged, open(staged, "w", encoding="utf-8") as file:
        for word, vector in zip(model.wv.index_to_key, model.wv.vectors):
            file.write(f"{word} {' '.join(f'{number:.6g}' for number in vector)}\n")
    print(f"{arguments.output}: {len(model.wv.vectors)} words, {arguments.dim} dimensions each")


if __name__ == "__main__":
    run_script(main)
