"""
A text cut into one part for each row of a batch, as word language models of small corpora read it.
"""

import zlib
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.data.lexicon import (
    BEGIN_SENTENCE_NUMBER,
    END_SENTENCE_NUMBER,
    PADDING_NUMBER,
    Lexicon,
)
from allennlp_elmo_plugin.data.text import PUT_BACK, SentenceStream
from allennlp_elmo_plugin.data.windows import Window

_LINE_END = PADDING_NUMBER  # no word has this number


class ContiguousWindowStream(Iterator[List[Window]]):
    """
    The windows of a text that is cut into as many contiguous parts as there are rows, of equal
    length up to one pair. Each row reads its part from beginning to end, across line ends. A line
    of n words has n + 1 pairs of an input and a target, `<S> w1 .. wn </S>`, as in `WindowStream`.

    The backward direction reads the text from its end: the lines in reverse order, each as
    `</S> wn .. w1 <S>`. Its rows are the parts of the text in that order.

    The whole text is read at once and held in memory as numbers: 4 bytes a word and 4 a line, twice
    as much while it is read. All its distinct words stay in the lexicon.

    # Parameters

    sentences : `SentenceStream`
        Not shuffled.
    batch_size : `int`
        The number of rows.
    num_steps : `int`
        The number of pairs in a row of a window.
    directions : `Sequence[str]`, optional (default = `("forward",)`)
        "forward" and "backward".
    drop_last : `bool`, optional (default = `True`)
        Whether to stop when the rows can't all be filled any more, and so drop the ends of the
        parts. Otherwise every pair is read once; the last windows have shorter rows, or empty ones.
    rows : `range`, optional (default = `None`)
        Return these rows only.
    lexicon : `Lexicon`, optional (default = `None`)
        It must not forget words as long as the stream is used.
    """

    def __init__(
        self,
        sentences: SentenceStream,
        batch_size: int,
        num_steps: int,
        *,
        directions: Sequence[str] = ("forward",),
        drop_last: bool = True,
        rows: Optional[range] = None,
        lexicon: Optional[Lexicon] = None,
    ) -> None:
        self._num_steps = num_steps
        self.directions = directions
        self._lexicon = Lexicon() if lexicon is None else lexicon
        # The words of all lines, with a line end before the first line and after each.
        self._text, self._checksum = _read(sentences, self._lexicon)
        n_pairs = len(self._text) - 1
        bounds = np.arange(batch_size + 1) * n_pairs // batch_size
        returned = np.arange(batch_size)[:, None] if rows is None else np.array(rows)[:, None]
        self._starts, self._ends = bounds[returned], bounds[returned + 1]
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._n_windows = count_contiguous_windows(
            n_pairs, batch_size, num_steps, drop_last=drop_last
        )
        self._n_read = 0
        self.n_dropped = 0
        """How many pairs of each direction `drop_last` has dropped, after the last window."""

    def __next__(self) -> List[Window]:
        n_pairs = len(self._text) - 1
        if self._n_read == self._n_windows:
            if self._drop_last:
                n_returned = self._n_windows * self._batch_size * self._num_steps
                self.n_dropped = n_pairs - n_returned
            raise StopIteration
        # The numbers of the pairs, as each direction counts them, shape (rows, num_steps).
        pairs = self._starts + self._n_read * self._num_steps + np.arange(self._num_steps)
        self._n_read += 1
        is_word = pairs < self._ends
        forward = pairs[is_word]
        windows = []
        for direction in self.directions:
            places = forward if direction == "forward" else n_pairs - 1 - forward
            words = self._words(places, BEGIN_SENTENCE_NUMBER)
            next_words = self._words(places + 1, END_SENTENCE_NUMBER)
            inputs, targets = np.full((2, *is_word.shape), PADDING_NUMBER, dtype=np.int32)
            if direction == "forward":
                inputs[is_word], targets[is_word] = words, next_words
            else:
                inputs[is_word], targets[is_word] = next_words, words
            windows.append(Window(inputs, targets, self._lexicon))
        return windows

    def _words(self, places: np.ndarray, line_end: int) -> np.ndarray:
        words = self._text[places]
        words[words == _LINE_END] = line_end
        return words

    def state_dicts(self) -> List[Dict[str, Any]]:
        """
        Return for each direction how many windows have been read, and a checksum of the text, as
        plain Python values.
        """
        return [{"n_read": self._n_read, "checksum": self._checksum} for _ in self.directions]

    def load_state_dicts(self, states: Sequence[Dict[str, Any]]) -> None:
        """
        Continue where another stream of the same arguments was.

        # Raises

        `ConfigurationError`
            The text has changed.
        """
        if states[0]["checksum"] != self._checksum:
            raise ConfigurationError(
                f"The text has changed since the checkpoint was saved. {PUT_BACK}"
            )
        self._n_read = states[0]["n_read"]


def count_contiguous_windows(
    n_pairs: int, batch_size: int, num_steps: int, *, drop_last: bool = True
) -> int:
    """Return the number of windows that `ContiguousWindowStream` makes of a text."""
    if drop_last:
        return n_pairs // batch_size // num_steps
    longest_row = -(-n_pairs // batch_size)
    return -(-longest_row // num_steps)


def _read(sentences: SentenceStream, lexicon: Lexicon) -> Tuple[np.ndarray, int]:
    """Return the numbers of all words, with a line end before and after each line; a checksum."""
    parts = [np.full(1, _LINE_END, dtype=np.int32)]
    checksum = 0
    while text := sentences.read():
        checksum = zlib.crc32(text, checksum)
        words, n_words = lexicon.number_text(text)
        line_ends = np.cumsum(n_words + 1) - 1
        is_word = np.ones(len(words) + len(n_words), dtype=bool)
        is_word[line_ends] = False
        part = np.full(len(is_word), _LINE_END, dtype=np.int32)
        part[is_word] = words
        parts.append(part)
    return np.concatenate(parts), checksum
