"""Streams of windows. Their content is tested by the dataset reader's tests."""

from allennlp_elmo_plugin.text import word_ids
from allennlp_elmo_plugin.text.windows import WindowStream
from allennlp_elmo_plugin.text.word_ids import WordIds


def test_lines_are_read_when_they_are_needed_and_kept_no_longer(monkeypatch):
    """The numbers of words are forgotten, too."""
    monkeypatch.setattr(word_ids, "MAX_WORDS", 100)
    words = WordIds()
    texts = ("".join(f"a b c {n}.{i}\n" for i in range(10)).encode() for n in range(1000))
    stream = WindowStream(texts, 3, 7, words)
    for _ in stream.fill_rows():
        assert len(stream.text) < 100 and stream.text.max() < 150
    texts = iter([b"a a a a\n"] * 20)
    next(WindowStream(texts, 2, 25, WordIds()).fill_rows())
    assert len(list(texts)) >= 10


def test_words_are_numbered_anew_in_the_order_of_the_streams(monkeypatch):
    """A resumed run must number them as the run that was killed."""
    monkeypatch.setattr(word_ids, "MAX_WORDS", 0)
    words = WordIds()
    texts = [iter([f"word{i}\n".encode()]) for i in range(6)]
    streams = [WindowStream(text, 1, 1, words, contiguous=True) for text in texts]
    words.forget()
    assert [stream.text.tolist() for stream in streams] == [[0, 3 + i, 0] for i in range(6)]
