import gzip

import pytest

from allennlp_elmo_plugin.analysis import labelled_text
from allennlp_elmo_plugin.analysis.labelled_text import Example, LabelledSentence

POS = (1, 1, 2)
# A byte order mark, -DOCSTART-, a `#` that is a word, a no-break space in one, \r\n, no last \n
POS_TEXT = "\ufeffThe DT B-NP\ncat NN\r\n \n\n-DOCSTART- -X- O\n\n# # B-NP\n1\xa0000\tCD\nx -\ny NN"
POS_SENTENCES = [(["The", "cat"], [(0, "The", "DT"), (1, "cat", "NN")])]
LABELLED = [(0, "#", "#"), (1, "1\xa0000", "CD"), (3, "y", "NN")]
POS_SENTENCES.append((["#", "1\xa0000", "x", "y"], LABELLED))
CONLL_2012 = (4, 7, 8)
CONLL_2012_TEXT = """\
#begin document (a); part 000
a 0 0 It PRP (TOP* - - - - * (ARG1*) -
a 0 1 's VBZ * be 01 - - * (V*) -

#end document
b 0 0 running VBG * run 02 - - * (V*) -
"""
CONLL_2012_SENTENCES = [(["It", "'s"], [(1, "be", "01")]), (["running"], [(0, "run", "02")])]
CONLL_U_TEXT = """\
# 1
1-2|Don't|_|_|_|_|_|_|_|_
1|Do|do|AUX|_|_|_|_|_|_
2.1|go|go|VERB|_|_|_|_|_|_
3|10 000|10 000|NUM|_|_|_|_|_|_
4|?|?|_|_|_|_|_|_|_
""".replace("|", "\t")
CONLL_U_SENTENCES = [(["Do", "10 000", "?"], [(0, "Do", "AUX"), (1, "10 000", "NUM")])]


@pytest.mark.parametrize(
    "columns, text, expected",
    [
        (POS, POS_TEXT, POS_SENTENCES),
        (CONLL_2012, CONLL_2012_TEXT, CONLL_2012_SENTENCES),
        ((2, 2, 4), CONLL_U_TEXT, CONLL_U_SENTENCES),
        ((2, 2, 3), "1\tThe\tDT\n\tcat\tNN\n\t\t\n", POS_SENTENCES[:1]),
    ],
)
def test_formats(columns, text, expected, tmp_path):
    paths = [tmp_path / "text", tmp_path / "compressed"]
    paths[0].write_bytes(text.encode())
    paths[1].write_bytes(gzip.compress(text.encode()))
    assert labelled_text.read_sentences(paths, columns) == 2 * expected  # A file ends a sentence.


@pytest.mark.parametrize(
    "text, columns, message",
    [
        ("a A\n\nb\n", POS, "text, line 3: lacks column 2"),
        ("a\t\tA\n", POS, "text, line 1: lacks column 2"),
        ("a - -\nb _\n", POS, "text: no word has a label in column 2; see --columns"),
        ("a A\n", CONLL_2012, "line 1: lacks column 8"),
    ],
)
def test_mistakes(text, columns, message, tmp_path):
    (tmp_path / "text").write_text(text)
    with pytest.raises(ValueError, match=message):
        labelled_text.read_sentences([tmp_path / "text"], columns)


def test_examples_are_drawn_sentence_by_sentence():
    def sentence(n_examples):
        examples = [Example(i, f"w{i}", "X") for i in range(n_examples)]
        return LabelledSentence([example.key for example in examples], examples)

    sentences = [sentence(n) for n in (3, 4, 2, 5)]
    assert labelled_text.choose(sentences, 14, seed=0) == sentences
    chosen = [labelled_text.choose(sentences, 8, seed) for seed in range(9)]
    for choice in chosen:
        assert sum(len(drawn.examples) for drawn in choice) == 8
        # The last sentence keeps its words, which are the context of the examples left.
        assert all(drawn.examples and sentence(len(drawn.words)) in sentences for drawn in choice)
    assert chosen[0] == labelled_text.choose(sentences, 8, seed=0)
    assert len({tuple(len(drawn.words) for drawn in choice) for choice in chosen}) > 1
