"""
Remove empty elements from trees of the Penn Treebank, for `allennlp elmo-benchmark`.

    python scripts/treebank.py wsj/00/*.mrg ... OUTPUT

writes one tree on each line, without empty elements (-NONE-) and constituents that contain only
these.
"""

import io
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from nltk import Tree
from nltk.corpus.reader.util import read_sexpr_block

from allennlp_elmo_plugin.exits import run_script
from allennlp_elmo_plugin.files.atomic import atomic_file
from allennlp_elmo_plugin.text.lines import open_lines


def without_empty(tree: Tree) -> Tree | None:
    """Return a tree without its empty elements, or None if it has no others."""
    if tree.label() == "-NONE-":
        return None
    children = [without_empty(each) if isinstance(each, Tree) else each for each in tree]
    kept = [child for child in children if child is not None]
    return Tree(tree.label(), kept) if kept else None


def trees(source: Path) -> Iterator[Tree]:
    """Yield the trees of a file."""
    with open_lines(source) as lines:
        text = " ".join(line.sentence for line in lines)
    try:
        for block in read_sexpr_block(io.StringIO(text), 10**9):
            yield Tree.fromstring(block, remove_empty_top_bracketing=True)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def main(source: Path, *others: Path) -> None:
    *more, output = others or [source]
    if output.exists():  # Perhaps OUTPUT was forgotten, and this is the last source.
        raise ValueError(f"{output} exists; the last argument is the file to write")
    n_trees = n_words = 0
    with atomic_file(output) as staged, open(staged, "w", encoding="utf-8") as file:
        for tree in filter(None, map(without_empty, chain(*map(trees, [source, *more])))):
            file.write(tree.pformat(margin=10**9) + "\n")
            n_trees += 1
            n_words += len(tree.leaves())
    print(f"{output}: {n_trees} trees, {n_words} words")


if __name__ == "__main__":
    run_script(main, __doc__)
