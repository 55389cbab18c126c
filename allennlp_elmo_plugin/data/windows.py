"""
Sentences cut into windows for truncated back-propagation through time.

Every row of a batch reads a stream of sentences, and the next batch continues its rows, so that a
model can carry its state from batch to batch. The rows are filled as bilm-tf fills them.
"""

from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

from allennlp_elmo_plugin.bilm.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD


class Window(NamedTuple):
    """
    One batch: for each row the words read, and for each of these the word to predict.
    """

    inputs: List[List[str]]
    targets: List[List[str]]


class TextPosition(NamedTuple):
    """
    The place in a pass over a corpus after a window: the number of the pass, how many of its
    windows have been read, and the `WindowStream.state_dict` of each direction.
    """

    epoch: int
    n_windows: int = 0
    streams: Sequence[Dict[str, Any]] = ()


class WindowStream(Iterator[Window]):
    """
    The windows of a text. Rows are filled one after another: a row continues its sentence where the
    last window stopped, then reads the next sentence of the common stream, until it holds
    `num_steps` pairs of an input and a target. A sentence of n words has n + 1 pairs.

    # Parameters

    sentences : `Iterable[Sequence[str]]`
        Tokenised sentences without boundary marks, read lazily: a
        `allennlp_elmo_plugin.data.text.SentenceStream` if `state_dict` will be called.
    batch_size : `int`
        The number of rows.
    num_steps : `int`
        The number of pairs in a row.
    reverse : `bool`, optional (default = `False`)
        Read each sentence from its end, as the backward direction does: `</S> wn .. w1 <S>`.
    drop_last : `bool`, optional (default = `True`)
        What to do when there are no sentences left to fill a row. `True`: stop, and drop the
        unfinished batch with what the other rows still hold (bilm-tf). `False`: continue until
        every pair has been read once; rows are then shorter than `num_steps`, or empty.
    """

    def __init__(
        self,
        sentences: Iterable[Sequence[str]],
        batch_size: int,
        num_steps: int,
        *,
        reverse: bool = False,
        drop_last: bool = True,
    ) -> None:
        self._sentences: Any = iter(sentences)
        self._num_steps = num_steps
        self._reverse = reverse
        self._drop_last = drop_last
        # Of each row its current sentence, and the word of it to read next.
        self._current: List[List[str]] = [[] for _ in range(batch_size)]
        self._positions = [0] * batch_size
        self.n_dropped = 0
        """How many pairs `drop_last` has dropped, after the last window."""

    def __next__(self) -> Window:
        first, last = BEGIN_SENTENCE_WORD, END_SENTENCE_WORD
        if self._reverse:
            first, last = last, first
        window = Window([], [])
        for row, (sentence, start) in enumerate(zip(self._current, self._positions)):
            inputs: List[str] = []
            targets: List[str] = []
            while len(inputs) < self._num_steps:
                if start + 1 >= len(sentence):
                    words = next(self._sentences, None)
                    if words is None:
                        break
                    sentence = [first, *(words[::-1] if self._reverse else words), last]
                    start = 0
                stop = min(start + self._num_steps - len(inputs), len(sentence) - 1)
                inputs += sentence[start:stop]
                targets += sentence[start + 1 : stop + 1]
                start = stop
            if self._drop_last and len(inputs) < self._num_steps:
                # What other rows hold, in this window and after it; this row has no more.
                self._current[row] = []
                n_held = sum(max(0, len(s) - 1 - i) for s, i in zip(self._current, self._positions))
                self.n_dropped = sum(map(len, window.inputs)) + len(inputs) + n_held
                raise StopIteration
            self._current[row], self._positions[row] = sentence, start
            window.inputs.append(inputs)
            window.targets.append(targets)
        if not any(window.inputs):
            raise StopIteration
        return window

    def state_dict(self) -> Dict[str, Any]:
        """
        Return the rest of each row's sentence and the state of `sentences`, as plain Python values.
        """
        rows = [words[start:] for words, start in zip(self._current, self._positions)]
        return {"rows": rows, "sentences": self._sentences.state_dict()}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Continue where another stream of the same arguments was."""
        self._current = list(state["rows"])
        self._positions = [0] * len(self._current)
        self._sentences.load_state_dict(state["sentences"])


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
