"""A corpus of several files, one of them compressed, and sentences one at a time."""

import gzip
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple

from allennlp_elmo_plugin.data.text import SentenceStream
from allennlp_elmo_plugin.data.windows import WindowStream
from allennlp_elmo_plugin.files.text_lines import split_words

LINES = [" ".join(f"{i}.{j}" for j in range(i % 7)) for i in range(300)]


def write_corpus(folder: Path) -> Path:
    """Write `LINES` to three files, and an empty one beside them."""
    folder.mkdir()
    for number in range(3):
        lines = LINES[100 * number : 100 * number + 100]
        content = "".join(f"{line}\n" for line in lines).encode()
        if number == 1:
            (folder / f"{number}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / f"{number}.txt").write_bytes(content)
    (folder / "empty").touch()
    return folder


class Sentences(Iterator[List[str]]):
    """The sentences of a `SentenceStream` as lists of words, one after another."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._stream = SentenceStream(*args, **kwargs)
        self._lines: List[bytes] = []

    def __next__(self) -> List[str]:
        if not self._lines:
            self._lines = self._stream.read().split(b"\n")[:-1]
        if not self._lines:
            raise StopIteration
        return split_words(self._lines.pop(0))

    def state_dict(self) -> Dict[str, int]:
        return self._stream.state_dict(len(self._lines))

    def load_state_dict(self, state: Dict[str, int]) -> None:
        self._lines = []
        self._stream.load_state_dict(state)


class WordWindow(NamedTuple):
    """A window of one direction: the words of each row, and for each of these that to predict."""

    inputs: List[List[str]]
    targets: List[List[str]]


def window_stream(
    sentences: Iterable[List[str]],
    batch_size: int,
    num_steps: int,
    *,
    reverse: bool = False,
    **kwargs: Any,
) -> WindowStream:
    """Return the stream of one direction, which reads one sentence at a time."""
    directions = ["backward" if reverse else "forward"]
    return WindowStream(
        ListedSentences(sentences), batch_size, num_steps, directions=directions, **kwargs
    )


def word_windows(*args: Any, **kwargs: Any) -> Iterator[WordWindow]:
    """Yield the windows of `window_stream`."""
    for (window,) in window_stream(*args, **kwargs):
        yield WordWindow(*window.words())


class ListedSentences:
    """Sentences in place of a `SentenceStream`, some of them at each `read`."""

    def __init__(self, sentences: Iterable[List[str]], n_at_once: int = 1) -> None:
        self._sentences = iter(sentences)
        self._n_at_once = n_at_once

    def read(self) -> bytes:
        some = [words for _, words in zip(range(self._n_at_once), self._sentences)]
        return "".join(f"{' '.join(words)}\n" for words in some).encode()
