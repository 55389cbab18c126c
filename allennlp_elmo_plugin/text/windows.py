"""
Text cut into windows for truncated back-propagation through time. Every row of a batch reads lines
of the text, and the next batch continues its rows, so that a model can carry its state.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from allennlp_elmo_plugin.text.word_ids import BEGIN_SENTENCE, END_SENTENCE, LINE_END, WordIds


class Window(NamedTuple):
    """
    One batch of one direction: the words read, and for each of these the word to predict, as
    numbers of `WordIds`, int32, shape (rows, num_steps); 0 after the last word of a row.
    """

    inputs: np.ndarray
    targets: np.ndarray


class WindowStream:
    """
    The windows of a text. A line of n words has n + 1 pairs of an input and a target,
    `<S> w1 .. wn </S>`; the backward direction reads it from its end, `</S> wn .. w1 <S>`.

    Rows are filled as bilm-tf fills them, one after another: a row continues its line where the
    last window stopped, then reads the next line of the common text, until it holds `num_steps`
    pairs. So the rows of both directions are filled alike.

    `texts` are lines as `read_text` yields them, and are read when they are needed. `n_rows`,
    `num_steps`, `drop_last` and `contiguous` are those of `TextBatches`. Streams may share a
    `word_ids`, which may renumber the words whenever one of them fills its rows. Only the rows in
    `returned` are returned, by default all; the others cost little.
    """

    def __init__(
        self,
        texts: Iterable[bytes],
        n_rows: int,
        num_steps: int,
        word_ids: WordIds,
        *,
        directions: Sequence[str] = ("forward",),
        drop_last: bool = True,
        contiguous: bool = False,
        returned: range | None = None,
    ) -> None:
        self._num_steps = num_steps
        self._word_ids = word_ids
        word_ids.streams[len(word_ids.streams)] = self
        self._directions = directions
        self._drop_last = drop_last
        self._returned = range(n_rows) if returned is None else returned
        # The lines that rows are reading, and some that follow, with a line end before the first
        # and after each. Pair p is words p and p + 1 of the whole text; `_start` is the first kept.
        self.text = np.full(1, LINE_END, dtype=np.int32)
        self._start = 0
        # For each row (pair, end, total): the next pair to read forward, and the end of the pairs
        # of its line (or part). With pair p forward, the backward direction reads `total - p`.
        self._rows = [(0, 0, -1)] * n_rows
        self._texts = texts
        if contiguous:
            self.text = np.concatenate([self.text, *map(word_ids.number, texts)])
            n_pairs = len(self.text) - 1
            bounds = [row * n_pairs // n_rows for row in range(n_rows + 1)]
            self._rows = [(*each, n_pairs - 1) for each in zip(bounds, bounds[1:])]
            self._texts = ()

    def fill_rows(self) -> Iterator[list[int]]:
        """
        Yield for each window the runs of pairs in its rows, one after another: the first pair of
        the forward direction, the run's `total` (see `__init__`), and the number of pairs. Both
        are -1 where a row is padded.
        """
        lines = self._read_lines()  # no attribute, so that reference counts free the text
        while True:
            runs: list[int] = []
            rows = []
            is_empty = True
            for number, (pair, end, total) in enumerate(self._rows):
                left = self._num_steps
                while left:
                    if pair == end:
                        pair, end = next(lines, (end, end))
                        if pair == end:
                            break
                        total = pair + end - 1
                    n_pairs = end - pair if end - pair < left else left
                    if number in self._returned:
                        runs += pair, total, n_pairs
                    pair += n_pairs
                    left -= n_pairs
                rows.append((pair, end, total))
                is_empty = is_empty and left == self._num_steps
                if left:
                    if self._drop_last:
                        return
                    if number in self._returned:
                        runs += -1, -1, left
            if is_empty:
                return
            self._rows = rows
            yield runs

    def _read_lines(self) -> Iterator[tuple[int, int]]:
        """Yield of each line its first pair and the end of its pairs."""
        start = 0
        for text in self._texts:
            # Drop what no row reads any more. A line is read from both ends.
            first = min(total - end + 1 for _, end, total in self._rows)
            self.text, self._start = self.text[first - self._start :], first
            self._word_ids.forget()
            numbers = self._word_ids.number(text)
            ends = np.flatnonzero(numbers == LINE_END) + (first + len(self.text))
            self.text = np.concatenate([self.text, numbers])
            for end in ends.tolist():
                yield start, end
                start = end

    def windows(self, runs: list[int]) -> list[Window]:
        """Return the window of each direction with the rows that `fill_rows` yielded last."""
        starts, totals, n_pairs = np.array(runs, dtype=np.intp).reshape(-1, 3).T
        ends = np.cumsum(n_pairs)
        # The pairs of each direction, shape (rows * num_steps,).
        forward = np.arange(ends[-1]) + np.repeat(starts - ends + n_pairs, n_pairs)
        backward = np.repeat(totals, n_pairs) - forward
        padding = np.flatnonzero(np.repeat(starts, n_pairs) < 0)
        windows = []
        for direction in self._directions:
            places = (forward if direction == "forward" else backward) - self._start
            places[padding] = 0
            left, right = self.text.take(places), self.text.take(places + 1)
            left[left == LINE_END] = BEGIN_SENTENCE
            right[right == LINE_END] = END_SENTENCE
            left[padding] = right[padding] = LINE_END
            both = left.reshape(-1, self._num_steps), right.reshape(-1, self._num_steps)
            windows.append(Window(*(both if direction == "forward" else both[::-1])))
        return windows
