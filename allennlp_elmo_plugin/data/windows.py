"""
Sentences cut into windows for truncated back-propagation through time.

Every row of a batch reads a stream of sentences, and the next batch continues its rows, so that a
model can carry its state from batch to batch. The rows are filled as bilm-tf fills them;
`contiguous_rows.py` fills them in the order of the text.
"""

from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from allennlp_elmo_plugin.data.lexicon import (
    BEGIN_SENTENCE_NUMBER,
    END_SENTENCE_NUMBER,
    PADDING_NUMBER,
    Lexicon,
)


class Window(NamedTuple):
    """
    One batch of one direction: the words read, and for each of these the word to predict, as
    numbers of a lexicon, int32, shape (rows, num_steps); 0 after the last word of a row. To be used
    before the next one is read.
    """

    inputs: np.ndarray
    targets: np.ndarray
    lexicon: Lexicon

    def words(self) -> "List[List[List[str]]]":
        """Return the words of each row of the inputs, and those of the targets."""
        return [
            [self.lexicon.words(row[row != PADDING_NUMBER]) for row in numbers]
            for numbers in (self.inputs, self.targets)
        ]


class TextPosition(NamedTuple):
    """
    The place in a pass over a corpus after a window: the number of the pass, how many of its
    windows have been read, and the state of each direction (`WindowStream.state_dicts`).
    """

    epoch: int
    n_windows: int = 0
    streams: Sequence[Dict[str, Any]] = ()


class WindowBatch(NamedTuple):
    """
    The windows of a batch, one for each direction, and the number of the batch in the pass.
    `position` returns the place after it, as long as the next one has not been read.
    """

    number: int
    windows: List[Window]
    position: Callable[[], TextPosition]


class WindowStream(Iterator[List[Window]]):
    """
    The windows of a text, one for each direction. Rows are filled one after another: a row
    continues its sentence where the last window stopped, then reads the next sentence of the common
    stream, until it holds `num_steps` pairs of an input and a target. A sentence of n words has
    n + 1 pairs. So the rows of both directions are filled alike, if they read the sentences in the
    same order.

    # Parameters

    sentences : `SentenceStream`
        Read lazily.
    batch_size : `int`
        The number of rows.
    num_steps : `int`
        The number of pairs in a row.
    directions : `Sequence[str]`, optional (default = `("forward",)`)
        "backward" reads each sentence from its end: `</S> wn .. w1 <S>`.
    drop_last : `bool`, optional (default = `True`)
        What to do when there are no sentences left to fill a row. `True`: stop, and drop the
        unfinished batch with what the other rows still hold (bilm-tf). `False`: continue until
        every pair has been read once; rows are then shorter than `num_steps`, or empty.
    rows : `range`, optional (default = `None`)
        Return these rows only. The others are filled, but cost little.
    lexicon : `Lexicon`, optional (default = `None`)
        Streams may share one. Call `forget_words` when it is full.
    """

    def __init__(
        self,
        sentences: Any,
        batch_size: int,
        num_steps: int,
        *,
        directions: Sequence[str] = ("forward",),
        drop_last: bool = True,
        rows: Optional[range] = None,
        lexicon: Optional[Lexicon] = None,
    ) -> None:
        self._sentences = sentences
        self._num_steps = num_steps
        self.directions = directions
        self._drop_last = drop_last
        self._returned = range(batch_size) if rows is None else rows
        self._lexicon = Lexicon() if lexicon is None else lexicon
        # Where the marked sentence of each row is in the text: its first number, the one that the
        # forward direction reads next, and the last, from which the backward direction is as far.
        self._rows = [(0, 0, 0)] * batch_size
        # Marked sentences as numbers: those of the rows, and those that no row has got yet. The
        # latter start at the places `_starts[_next:-1]` and end with the text, at `_starts[-1]`.
        self._text = np.zeros(1, dtype=np.int32)
        self._starts = [1]
        self._next = 0
        self._has_grown = False
        self.n_dropped = 0
        """How many pairs of each direction `drop_last` has dropped, after the last window."""

    def __next__(self) -> List[Window]:
        if self._has_grown:
            self._drop_what_was_read()
        # In the rows to be returned, for each run of pairs of one sentence: where the forward
        # direction starts, the sum of the places of both directions, and the number of pairs.
        runs: List[int] = []
        lengths = []
        is_empty = True
        for number, (first, position, last) in enumerate(self._rows):
            is_returned = number in self._returned
            left = self._num_steps
            while left:
                if position == last:
                    if self._next + 1 == len(self._starts) and not self._read():
                        break
                    first = position = self._starts[self._next]
                    self._next += 1
                    last = self._starts[self._next] - 1
                n_pairs = last - position if last - position < left else left
                if is_returned:
                    runs += position, first + last, n_pairs
                position += n_pairs
                left -= n_pairs
            self._rows[number] = (first, position, last)
            if left and self._drop_last:
                # What the rows so far have in this window, and what all hold after it.
                n_held = sum(last - position for _, position, last in self._rows)
                self.n_dropped = (number + 1) * self._num_steps - left + n_held
                raise StopIteration
            is_empty = is_empty and left == self._num_steps
            if is_returned:
                lengths.append(self._num_steps - left)
        if is_empty:
            raise StopIteration

        starts, sums, n_pairs_of_runs = np.array(runs, dtype=np.intp).reshape(-1, 3).T
        ends = np.cumsum(n_pairs_of_runs)
        forward = np.arange(sum(lengths)) + np.repeat(
            starts - ends + n_pairs_of_runs, n_pairs_of_runs
        )
        backward = np.repeat(sums, n_pairs_of_runs) - forward
        is_word = np.arange(self._num_steps) < np.array(lengths)[:, None]
        windows = []
        for direction in self.directions:
            places, step = (forward, 1) if direction == "forward" else (backward, -1)
            inputs, targets = np.full((2, *is_word.shape), PADDING_NUMBER, dtype=np.int32)
            inputs[is_word] = self._text[places]
            targets[is_word] = self._text[places + step]
            windows.append(Window(inputs, targets, self._lexicon))
        return windows

    @staticmethod
    def forget_words(lexicon: Lexicon, streams: "Sequence[WindowStream]") -> None:
        """Make a lexicon, which only these streams use, forget words."""
        texts = [lexicon.words(stream._text[1:]) for stream in streams]
        lexicon.forget()
        for stream, words in zip(streams, texts):
            stream._text[1:] = lexicon.number_words(words)

    def _read(self) -> bool:
        """Append sentences to the text, if there are any."""
        text = self._sentences.read()
        if not text:
            return False
        words, n_words = self._lexicon.number_text(text)
        starts = np.cumsum(np.append(0, n_words + 2))
        sentences = np.empty(starts[-1], dtype=np.int32)
        is_word = np.ones(len(sentences), dtype=bool)
        is_word[starts[:-1]] = is_word[starts[1:] - 1] = False
        sentences[starts[:-1]] = BEGIN_SENTENCE_NUMBER
        sentences[starts[1:] - 1] = END_SENTENCE_NUMBER
        sentences[is_word] = words
        self._starts = (starts + len(self._text)).tolist()
        self._next = 0
        self._text = np.concatenate([self._text, sentences])
        self._has_grown = True
        return True

    def _drop_what_was_read(self) -> None:
        """Keep only the sentences of rows and those to come."""
        parts = [self._text[:1]]
        length = 1
        for number, (first, position, last) in enumerate(self._rows):
            if position == last:
                self._rows[number] = (0, 0, 0)
                continue
            parts.append(self._text[first : last + 1])
            self._rows[number] = (length, length + position - first, length + last - first)
            length += last + 1 - first
        start = self._starts[self._next]
        parts.append(self._text[start:])
        self._starts = [place - start + length for place in self._starts[self._next :]]
        self._next = 0
        self._text = np.concatenate(parts)
        self._has_grown = False

    def state_dicts(self) -> List[Dict[str, Any]]:
        """
        Return for each direction the rest of each row's sentence, as it will be read, and the state
        of `sentences`, as plain Python values.
        """
        sentences = self._sentences.state_dict(len(self._starts) - 1 - self._next)
        states = []
        for direction in self.directions:
            rows = []
            for first, position, last in self._rows:
                if direction == "forward":
                    rest = self._text[position : last + 1]
                else:
                    rest = self._text[first : first + last - position + 1][::-1]
                rows.append(self._lexicon.words(rest) if position < last else [])
            states.append({"rows": rows, "sentences": sentences})
        return states

    def load_state_dicts(self, states: Sequence[Dict[str, Any]]) -> None:
        """Continue where another stream of the same arguments was."""
        parts = [self._text[:1]]
        length = 1
        for number, rests in enumerate(zip(*(state["rows"] for state in states))):
            self._rows[number] = (0, 0, 0)
            n_left = len(rests[0]) - 1
            if n_left < 1:
                continue
            # In place of the whole sentence, whose middle both directions may have read: the end
            # that the backward direction still reads, then that of the forward direction.
            for direction, rest in sorted(zip(self.directions, rests)):
                words = rest if direction == "forward" else rest[::-1]
                parts.append(self._lexicon.number_words(words))
            last = length + len(rests) * (n_left + 1) - 1
            self._rows[number] = (length, last - n_left, last)
            length = last + 1
        self._text = np.concatenate(parts)
        self._starts = [length]
        self._next = 0
        self._sentences.load_state_dict(states[0]["sentences"])


def count_windows(
    lengths: Iterable[int], batch_size: int, num_steps: int, *, drop_last: bool = True
) -> int:
    """Return the number of windows that `WindowStream` makes of sentences of these lengths."""
    stream = iter(lengths)
    pairs_left = [0] * batch_size
    count = 0
    while True:
        n_pairs = 0
        for row in range(batch_size):
            while pairs_left[row] < num_steps:
                length = next(stream, None)
                if length is None:
                    break
                pairs_left[row] += length + 1
            taken = min(pairs_left[row], num_steps)
            if drop_last and taken < num_steps:
                return count
            pairs_left[row] -= taken
            n_pairs += taken
        if not n_pairs:
            return count
        count += 1


def check_window_order(window: Any, previous: Optional[int] = None) -> int:
    """
    Check that a data loader has kept the rows of a batch together and in order, without which a
    model that carries its state from batch to batch learns nonsense.

    # Parameters

    window : `torch.Tensor` or `np.ndarray`
        int64, shape (rows, 3), for each row: the number of the window in this pass over the data,
        the number of the row, and the number of rows that belong together.
    previous : `int`, optional (default = `None`)
        What this function returned for the batch before. If given, `window` must be the next one
        or the first of a new pass.

    # Returns

    `int`
        The number of the window in this pass.

    # Raises

    `ValueError`
        The message names the settings of the data loader that keep the order.
    """
    rows = window.tolist()
    number, _, batch_size = rows[0]
    if len(rows) != batch_size:
        problem = f"got a batch of {len(rows)} rows where the dataset reader made {batch_size}"
    elif rows != [[number, row, batch_size] for row in range(batch_size)]:
        problem = "the rows of a batch are not in the order in which the dataset reader made them"
    elif previous is not None and number not in (0, previous + 1):
        problem = f"window {number} follows window {previous}"
    else:
        return number
    raise ValueError(
        f"The data loader changed the order of the text: {problem}. "
        'Use the data loader "truncated_bptt", or set for AllenNLP\'s own ("multiprocess"): '
        f"batch_size {batch_size} (that of the dataset reader), shuffle false, no batch_sampler, "
        "and max_instances_in_memory unset or a multiple of batch_size."
    )
