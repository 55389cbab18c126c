"""Progress bars of commands."""

import sys
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
    # Without standard error (2>&-), there is nowhere to show it.
    with Tqdm.tqdm(**settings, leave=False, disable=sys.stderr is None) as bar:
        yield bar
        bar.leave = True
