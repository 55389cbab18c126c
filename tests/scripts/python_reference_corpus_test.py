from pathlib import Path
from typing import Any

import pytest

from tests.support.module_files import load_module


@pytest.fixture(scope="module")
def corpus(repository_root: Path) -> Any:
    """The script as a module."""
    return load_module(repository_root / "scripts" / "python_reference_corpus.py")


TOPIC = """\
Class definitions
*****************

A class definition defines a *class object* (see section “Types”, e.g.
"dict").  It doesn’t evaluate the built-
in "len(x)".

   classdef    ::= [decorators] "class" classname [inheritance] ":" suite

   >>> print("no prose here.")
   no prose here.

* The first item has a value of 3.14.

* "__init__" is called; see **PEP 614** for details.

+-----------+-----------------------------------------+
| Type      | Meaning of the type, in plain words.    |
+-----------+-----------------------------------------+
"""


def test_sentences_are_prose_without_typesetting(corpus: Any) -> None:
    assert list(corpus.sentences(TOPIC)) == [
        "A class definition defines a class object ( see section Types , e.g. dict ) .",
        "It does n't evaluate the built-in len ( x ) .",
        "The first item has a value of 3.14 .",
        "__init__ is called ; see PEP 614 for details .",
    ]
    for sentence, tokens in {
        "The class's suite can't end.": "The class 's suite ca n't end .",
        'Read "self.x == y**2" (i.e. two).': "Read self.x == y ** 2 ( i.e. two ) .",
        "A *star* and **two**": "A star and two",
        "x -> y, ...": "x -> y , ...",
    }.items():
        assert " ".join(corpus.tokenize(sentence)) == tokens


def test_parts_share_no_sentence(corpus: Any) -> None:
    parts = corpus.split_topics()
    everything = [line for lines in parts.values() for line in lines]
    assert len(set(everything)) == len(everything)
    assert len(parts["train"]) > 1000
    for part in ("validation", "heldout"):
        assert 0.05 < len(parts[part]) / len(everything) < 0.25
    assert corpus.split_topics() == parts
