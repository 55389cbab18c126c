import gzip
from pathlib import Path
from typing import Sequence

import pytest

from allennlp_elmo_plugin.probing.labelled_text import (
    Example,
    LabelledSentence,
    choose,
    read_sentences,
)

POS = (1, 1, 2)
CONLL_2012 = (4, 7, 8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "text"


@pytest.mark.parametrize("is_compressed", [False, True])
def test_two_columns_and_more(is_compressed: bool, path: Path) -> None:
    # A byte order mark, -DOCSTART-, a `#` that is a word, a no-break space in one, \r\n, no last \n
    text = (
        "\ufeffThe DT B-NP\ncat NN\r\n \n\n-DOCSTART- -X- O\n\n# # B-NP\n10\xa0000\tCD\nx -\ny NN"
    ).encode()
    path.write_bytes(gzip.compress(text) if is_compressed else text)
    first, second, *others = read_sentences([path, path], POS)
    assert first == (["The", "cat"], [Example(0, "The", "DT"), Example(1, "cat", "NN")])
    assert second.words == ["#", "10\xa0000", "x", "y"]
    labels = [(position, label) for position, _, label in second.examples]
    assert labels == [(0, "#"), (1, "CD"), (3, "NN")]
    assert others == [first, second]  # A file ends a sentence.


CONLL_2012_TEXT = """\
#begin document (a); part 000
a 0 0 It PRP (TOP* - - - - * (ARG1*) -
a 0 1 's VBZ * be 01 - - * (V*) -

#end document
b 0 0 running VBG * run 02 - - * (V*) -
"""
CONLL_U_TEXT = """\
# 1
1-2|Don't|_|_|_|_|_|_|_|_
1|Do|do|AUX|_|_|_|_|_|_
2.1|go|go|VERB|_|_|_|_|_|_
3|10 000|10 000|NUM|_|_|_|_|_|_
4|?|?|_|_|_|_|_|_|_
"""
CONLL_U = (["Do", "10 000", "?"], [(0, "Do", "AUX"), (1, "10 000", "NUM")])


def test_conll_2012_and_conll_u(path: Path) -> None:
    path.write_text(CONLL_2012_TEXT)
    first, second = read_sentences([path], CONLL_2012)
    assert first == (["It", "'s"], [(1, "be", "01")])
    assert second == (["running"], [(0, "run", "02")])
    path.write_text(CONLL_U_TEXT.replace("|", "\t"))
    assert read_sentences([path], (2, 2, 4)) == [CONLL_U]


@pytest.mark.parametrize(
    "text, columns, message",
    [
        ("a A\n\nb\n", POS, "text, line 3: lacks column 2"),
        ("a\t\tA\n", POS, "text, line 1: lacks column 2"),
        ("a - -\nb _\n", POS, "text: no word has a label in column 2; see --columns"),
        ("a A\n", CONLL_2012, "line 1: lacks column 8"),
    ],
)
def test_mistakes(text: str, columns: Sequence[int], message: str, path: Path) -> None:
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_sentences([path], columns)


def test_examples_are_drawn_sentence_by_sentence() -> None:
    def sentence(n_examples: int) -> LabelledSentence:
        examples = [Example(i, f"w{i}", "X") for i in range(n_examples)]
        return LabelledSentence([each.key for each in examples], examples)

    sentences = [sentence(n) for n in (3, 0, 4, 2, 5)]
    assert choose(sentences, 14, seed=0) == [sentence(n) for n in (3, 4, 2, 5)]
    orders = set()
    for seed in range(9):
        chosen = choose(sentences, 8, seed)
        assert sum(len(each.examples) for each in chosen) == 8
        # The last sentence keeps its words, which are the context of the examples left.
        assert all(each.examples and sentence(len(each.words)) in sentences for each in chosen)
        orders.add(tuple(len(each.words) for each in chosen))
    assert len(orders) > 1 and choose(sentences, 8, seed) == chosen
