"""Progress bars of commands."""

from contextlib import contextmanager
from typing import Any, Iterator

from allennlp.common.tqdm import Tqdm


@contextmanager
def progress_bar(**settings: Any) -> Iterator[Any]:
    """
    Show a progress bar. It stays when the work is done, and vanishes when it fails, so that the
    error stands alone.

    # Parameters

    settings : `Any`
        Those of `tqdm`.

    # Returns

    `Iterator[Any]`
        The bar, a `tqdm`.
    """
    with Tqdm.tqdm(**settings, leave=False) as bar:
        yield bar
        bar.leave = True
