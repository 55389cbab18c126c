"""The text that a command reads, with a progress bar."""

from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence, Tuple

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.files.text_lines import SentenceLine, open_lines
from allennlp_elmo_plugin.progress import progress_bar

_LINES_BETWEEN_UPDATES = 1024


@contextmanager
def reading(files: Sequence[Path]) -> Iterator[Iterator[Tuple[Path, SentenceLine]]]:
    """
    Show a progress bar in this block. Yield the lines of all files, each with its file, as they are
    read.
    """
    total = sum(file.stat().st_size for file in files)
    with progress_bar(total=total, unit="B", unit_scale=True, desc="reading") as bar:
        yield _lines(files, bar.update)


def _lines(
    files: Sequence[Path], update: Callable[[int], Any]
) -> Iterator[Tuple[Path, SentenceLine]]:
    for file in files:
        with open_lines(file, ConfigurationError) as lines:
            position = 0
            for line in lines:
                yield file, line
                if lines.number % _LINES_BETWEEN_UPDATES == 0:
                    update(lines.position - position)
                    position = lines.position
            update(lines.position - position)
