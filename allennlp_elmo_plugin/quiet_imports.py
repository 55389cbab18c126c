"""Imports without output, such as nltk's downloads, warnings and messages logged below errors."""

import logging
import signal
import sys
from contextlib import contextmanager
from typing import Any, Iterator


class _Muted:
    """Standard error that drops text while `muted`. Modules imported in that time may keep it."""

    muted = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if not _Muted.muted and self._stream is not None:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Print nothing to standard error while modules are imported, except errors that are logged."""
    stream, level = sys.stderr, logging.root.manager.disable
    muted: Any = _Muted(stream)
    sys.stderr, _Muted.muted = muted, True
    logging.disable(max(level, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(level)
        sys.stderr, _Muted.muted = stream, False


@contextmanager
def quiet_start() -> Iterator[None]:
    """`quiet_imports` for the start of a program: Ctrl-C ends it at once, without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    is_default = handler is signal.default_int_handler  # `nohup` ignores the signal
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with quiet_imports():
            yield
    finally:
        if is_default:
            signal.signal(signal.SIGINT, handler)


def import_plugins() -> None:
    """Import AllenNLP's plugins, allennlp_models among them, for the classes they register."""
    from allennlp.common import plugins

    with quiet_imports():
        plugins.import_plugins()
