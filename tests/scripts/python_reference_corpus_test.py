import runpy

TOPIC = """\
A class definition defines a *class object* (see section “Types”, e.g.
"dict").  It doesn’t evaluate the built-
in "len(x)".

   classdef    ::= [decorators] "class" classname [inheritance] ":" suite

* The first item has a value of 3.14, or self.x == y**2.

* "__init__" is called; see **PEP 614** for details.

| Type | Meaning of the type, in plain words. |
"""


def test_the_corpus_is_prose_and_its_parts_share_no_sentence(repository_root):
    script = runpy.run_path(str(repository_root / "scripts" / "python_reference_corpus.py"))
    assert list(script["sentences"](TOPIC)) == [
        "A class definition defines a class object ( see section Types , e.g. dict ) .",
        "It does n't evaluate the built-in len ( x ) .",
        "The first item has a value of 3.14 , or self.x == y ** 2 .",
        "__init__ is called ; see PEP 614 for details .",
    ]
    parts = script["split_topics"]()
    everything = [line for lines in parts.values() for line in lines]
    assert len(set(everything)) == len(everything) and len(parts["train"]) > 1000
    assert all(len(lines) > 0.05 * len(everything) for lines in parts.values())
