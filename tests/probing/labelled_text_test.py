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
CONLL_U = (2, 2, 4)
CONLL_2012 = (4, 7, 8)


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "text"
    path.write_text(text, encoding="utf-8")
    return path


def test_two_columns_and_more(tmp_path: Path) -> None:
    # A byte order mark, -DOCSTART-, a `#` that is a word, a no-break space in one, \r\n, no last \n
    text = (
        "\ufeffThe DT B-NP\ncat NN\r\n \n\n-DOCSTART- -X- O\n\n# # B-NP\n10\xa0000\tCD\nx -\ny NN"
    )
    first, second = read_sentences(_write(tmp_path, text), POS)
    assert first == (["The", "cat"], [Example(0, "The", "DT"), Example(1, "cat", "NN")])
    assert second.words == ["#", "10\xa0000", "x", "y"]
    labels = [(position, label) for position, _, label in second.examples]
    assert labels == [(0, "#"), (1, "CD"), (3, "NN")]


def test_conll_2012(tmp_path: Path) -> None:
    text = """\
#begin document (a); part 000
a 0 0 It PRP (TOP* - - - - * (ARG1*) -
a 0 1 's VBZ * be 01 - - * (V*) -

#end document
#begin document (b); part 000
b 0 0 running VBG * run 02 - - * (V*) -
#end document
"""
    first, second = read_sentences(_write(tmp_path, text), CONLL_2012)
    assert first == (["It", "'s"], [Example(1, "be", "01")])
    assert second == (["running"], [Example(0, "run", "02")])


def test_conll_u(tmp_path: Path) -> None:
    rest = "\t_" * 4
    text = f"""\
# text = Don't 10 000
1-2\tDon't\t_\t_\t_\t_{rest}
1\tDo\tdo\tAUX\tVBP\t_{rest}
2\tn't\tnot\tPART\tRB\t_{rest}
2.1\tgo\tgo\tVERB\tVB\t_{rest}
3\t10 000\t10 000\tNUM\tCD\t_{rest}
4\t?\t?\t_\t_\t_{rest}
"""
    (sentence,) = read_sentences(_write(tmp_path, text), CONLL_U)
    assert sentence.words == ["Do", "n't", "10 000", "?"]
    assert [example.label for example in sentence.examples] == ["AUX", "PART", "NUM"]


def test_a_folder_with_a_gzip_file(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("a A", encoding="utf-8")
    (tmp_path / "2").write_bytes(gzip.compress(b"b B"))
    assert [sentence.words for sentence in read_sentences(tmp_path, POS)] == [["a"], ["b"]]


@pytest.mark.parametrize(
    "text, columns, message",
    [
        ("a A\n\nb\n", POS, "text, line 3: lacks column 2"),
        ("a\t\tA\n", POS, "text, line 1: lacks column 2"),
        ("a - -\nb _\n", POS, "no word has a label in column 2; see --columns"),
        ("\n\n", POS, "no word has a label in column 2"),
        ("a A\n", (4, 7, 8), "line 1: lacks column 8"),
        ("", (), "text, line 1: byte 0xe9 is not UTF-8"),
    ],
)
def test_mistakes(text: str, columns: Sequence[int], message: str, tmp_path: Path) -> None:
    path = _write(tmp_path, text)
    if not columns:
        path.write_bytes(b"caf\xe9 NN\n")
    with pytest.raises(ValueError, match=message):
        read_sentences(path, columns or POS)


def test_examples_are_drawn_sentence_by_sentence() -> None:
    def sentence(n_examples: int) -> LabelledSentence:
        words = [f"w{i}" for i in range(n_examples)]
        return LabelledSentence(words, [Example(i, word, "X") for i, word in enumerate(words)])

    sentences = [sentence(n) for n in (3, 0, 4, 2, 5)]
    assert choose(sentences, 14, seed=0) == [sentence(n) for n in (3, 4, 2, 5)]
    orders = set()
    for seed in range(9):
        chosen = choose(sentences, 8, seed)
        assert sum(len(each.examples) for each in chosen) == 8
        assert all(each.examples for each in chosen)
        # The last sentence keeps its words, which are the context of the examples left.
        assert all(sentence(len(each.words)) in sentences for each in chosen)
        assert chosen == choose(sentences, 8, seed)
        orders.add(tuple(len(each.words) for each in chosen))
    assert len(orders) > 1 and sentences == [sentence(n) for n in (3, 0, 4, 2, 5)]
