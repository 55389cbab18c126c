"""
Turn the language reference that every Python contains (`pydoc_data.topics`) into a corpus for a
language model: one tokenised sentence per line.

    python scripts/python_reference_corpus.py OUTPUT_DIR

writes `train.txt`, `validation.txt` and `heldout.txt`. The parts have different topics, and no
sentence is in two of them or twice in one. The text differs a little between versions of Python.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

from allennlp_elmo_plugin.exits import run_script

HELD_OUT_SHARE = 0.1  # of the sentences, in each of the validation and the held-out part
_PART_SHARE = 0.5  # A topic is an excerpt if this share of its sentences is in longer topics.

_STRAIGHT_QUOTES = str.maketrans("‘’“”", "''\"\"")
_RULE = re.compile(r"[*=\-~^\"+]{3,}$")
_ITEM = re.compile(r"(?:[*•-]|\[?\d+[.\])]|[a-z]\.)\s+")
_CODE = re.compile(r"::=|>>>|^\.\.\. |^[|+].*[|+]$")
# A sentence ends at these marks if a space and then a new beginning follow.
_SENTENCE_END = re.compile(
    r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)(?<!\betc\.)(?<!\bcf\.)"
    r"(?<=[.!?])[)\"']*\s+(?=[(\"'*]*[A-Z]|[*\"]\w)"
)
_TOKEN = re.compile(
    r"e\.g\.|i\.e\.|etc\."
    r"|n't\b|'(?:s|re|ve|ll|d|m)\b"
    r"|\w+?(?=n't\b)"
    r"|\w+(?:[.-]\w+)*"  # names, numbers, dotted names, compounds
    r"|\.\.\.|->|\*\*|//|<<|>>|[-+*/%&|^@<>=!:]="
    r"|\S"
)


def blocks(text: str) -> Iterator[str]:
    """Yield the text between blank lines, each block with its lines joined, without headings."""
    for block in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in block.strip().splitlines()]
        if len(lines) > 1 and _RULE.match(lines[1]):
            lines = lines[2:]
        # Every item of a list is a separate block.
        start = 0
        for i in range(1, len(lines) + 1):
            if i == len(lines) or _ITEM.match(lines[i]):
                # A word that is broken at its hyphen continues without a space.
                yield re.sub(r"(\w-)\n(?=[a-z])", r"\1", "\n".join(lines[start:i]))
                start = i


def is_prose(block: str) -> bool:
    """Return whether a block is sentences, not code, grammar rules, signatures or tables."""
    if any(_CODE.search(line) for line in block.splitlines()):
        return False
    words = block.split()
    n_plain = sum(bool(re.fullmatch(r"[(\"'*]*[A-Za-z][a-z'-]*[,.;:)\"'*]*", w)) for w in words)
    return (
        len(words) >= 4
        and n_plain >= 0.6 * len(words)
        and bool(re.match(r"[(\"'*]*[A-Z]|[*\"]\w", block))
        and bool(re.search(r"[.!?:][)\"'*]*$", block))
    )


def tokenize(sentence: str) -> list[str]:
    """
    Split into words, numbers, punctuation marks and operators, without the manual's typesetting:
    double quotes or back quotes around code, asterisks around emphasis.
    """
    sentence = re.sub(r"(\*{1,2})(?=\w)([^*]*[^*\s])\1", r"\2", sentence)
    return _TOKEN.findall(re.sub(r"[\"`]", " ", sentence))


def sentences(text: str) -> Iterator[str]:
    """Yield the tokenised sentences of a topic, tokens separated by single spaces."""
    for block in blocks(text.translate(_STRAIGHT_QUOTES)):
        block = _ITEM.sub("", block, count=1) if _ITEM.match(block) else block
        if is_prose(block):
            for sentence in _SENTENCE_END.split(block):
                tokens = tokenize(sentence)
                if len(tokens) > 2:
                    yield " ".join(tokens)


def split_topics() -> dict[str, list[str]]:
    """
    Return the sentences of each part. Topics are spread by size: the validation and the held-out
    part have every other one of the shortest, the training part the rest.
    """
    seen = set()
    by_topic: dict[str, list[str]] = {}
    # Many topics are excerpts of longer ones, which therefore come first.
    for topic in sorted(topics, key=lambda name: (-len(topics[name]), name)):
        found = list(dict.fromkeys(sentences(topics[topic])))
        new = [sentence for sentence in found if sentence not in seen]
        seen.update(found)
        if len(new) > (1 - _PART_SHARE) * len(found):
            by_topic[topic] = new

    size = HELD_OUT_SHARE * sum(map(len, by_topic.values()))
    parts: dict[str, list[str]] = {"train": [], "validation": [], "heldout": []}
    for topic in reversed(by_topic):
        smaller = min(parts["validation"], parts["heldout"], key=len)
        (smaller if len(smaller) < size else parts["train"]).extend(by_topic[topic])
    return parts


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, lines in split_topics().items():
        text = "".join(f"{line}\n" for line in lines)
        (folder / f"{part}.txt").write_text(text, encoding="utf-8")
        n_words = sum(len(line.split()) for line in lines)
        print(f"{folder / part}.txt: {len(lines):,} sentences, {n_words:,} words")


if __name__ == "__main__":
    run_script(main, __doc__)
