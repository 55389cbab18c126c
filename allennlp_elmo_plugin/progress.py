"""Progress bars of commands."""

import sys
from contextlib import contextmanager
from typing import Any, Iterator

from allennlp.common.tqdm import Tqdm


@contextmanager
def progress_bar(**settings: Any) -> Iterator[Any]:
    """
    Show a progress bar, a `tqdm` with these settings. It stays when the work is done and disappears
    when it fails, so that only the error is left.
    """
    # Without standard error (2>&-), there is nowhere to show it.
    with Tqdm.tqdm(**settings, leave=False, disable=sys.stderr is None) as bar:
        yield bar
        bar.leave = True
