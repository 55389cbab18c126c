"""Ending a program by the signal that has stopped it, as shells expect; no signal gets lost."""

import atexit
import os
import signal
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Callable, Iterable, Iterator, List, NoReturn, Optional

from allennlp.common import util as allennlp_util

_NUMBERS = (signal.SIGINT, signal.SIGTERM)

_SECONDS = 0.05
"""After which a lost signal is sent again."""

_Handler = Callable[[int, Any], Any]


class Terminated(KeyboardInterrupt):
    """SIGTERM. AllenNLP's `SigTermReceived` is lost in an `except Exception`; this is not."""


@contextmanager
def terminable() -> Iterator[None]:
    """
    In the `with` block, let SIGTERM raise `Terminated` where AllenNLP's program lets it raise an
    exception, and let no signal get lost.
    """

    def terminate(number: int, frame: Any) -> NoReturn:
        raise Terminated

    handler = signal.getsignal(signal.SIGTERM)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or handler is not allennlp_util._handle_sigterm:
        yield
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        with lost_signals_sent_again(), signals_first():
            yield
    finally:
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def lost_signals_sent_again(on_loss: Callable[[], None] = lambda: None) -> Iterator[None]:
    """
    If in the `with` block the exception of a signal is raised where Python ignores exceptions, as
    while the garbage collector closes a generator, send the signal again.

    # Parameters

    on_loss : `Callable[[], None]`, optional
        Called before a signal is sent again.
    """
    before = sys.unraisablehook

    def send(number: int) -> None:
        on_loss()
        os.kill(os.getpid(), number)

    def send_again(ignored: Any) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            before(ignored)
            return
        is_terminated = issubclass(ignored.exc_type, Terminated)
        number = signal.SIGTERM if is_terminated else signal.SIGINT
        threading.Timer(_SECONDS, send, (number,)).start()

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def signals_first(has_arrived: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """
    If the exception of a signal makes another error come up in the `with` block, as when a file is
    closed whose writing was interrupted, raise that of the signal.

    # Parameters

    has_arrived : `Callable[[], bool]`, optional
        Return whether a signal has arrived, the exception of which may have been lost in an
        `except` for all exceptions. Then any error comes from that signal.
    """
    try:
        yield
    except Exception as error:
        before: Optional[BaseException] = error
        while before is not None and not isinstance(before, KeyboardInterrupt):
            before = before.__context__
        if before is None and has_arrived():
            before = KeyboardInterrupt()
        if before is None:
            raise
        raise before from None


@contextmanager
def signals_kept() -> Iterator[None]:
    """
    If SIGINT or SIGTERM arrives in the `with` block, raise at its end what their handler has
    raised, whatever other code, which calls ours, has made of that.
    """
    raised: List[BaseException] = []

    def keep(handler: _Handler) -> _Handler:
        def handle(number: int, frame: Any) -> None:
            try:
                handler(number, frame)
            except BaseException as error:
                raised.append(error)
                raise

        return handle

    try:
        with _wrapped_handlers(keep):
            yield
    except GeneratorExit:  # A signal has ended the block before contextlib could.
        raise
    except BaseException:
        if not raised:
            raise
    if raised:
        raise raised[0] from None


@contextmanager
def _wrapped_handlers(wrap: Callable[[_Handler], _Handler]) -> Iterator[None]:
    """
    In the `with` block, let what `wrap` makes of the handlers of SIGINT and SIGTERM handle them. A
    signal at its end may leave one there: after the block, it must do what the handler itself does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Handlers are called in the main thread only.
        return
    handlers = {number: signal.getsignal(number) for number in _NUMBERS}
    try:
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, wrap(handler))
        yield
    finally:
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, handler)


def let_signals_kill() -> None:
    """
    Let SIGINT and SIGTERM end this process at once, after a first one has ended its work, or if it
    is a child that has nothing to lose. One that is ignored, as SIGINT in a shell's background job,
    stays so.
    """
    for number in _NUMBERS:
        if signal.getsignal(number) != signal.SIG_IGN:
            with suppress(ValueError):  # Only the main thread may set handlers.
                signal.signal(number, signal.SIG_DFL)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """
    In the `with` block, let SIGINT and SIGTERM wait, also in the processes that are started in it:
    a child that has begun with its parent's handlers would print the exception of a signal.
    """
    arrived: List[int] = []
    is_over = False

    def wait(handler: _Handler) -> _Handler:
        def handle(number: int, frame: Any) -> None:
            if is_over:
                handler(number, frame)
            else:
                arrived.append(number)

        return handle

    try:
        # The mask is that of one thread, and children have it; another thread may get the signal.
        with _wrapped_handlers(wait):
            # Each call may raise the exception of another signal, after it has changed the mask.
            before = _mask("SIG_BLOCK", ())
            try:
                _mask("SIG_BLOCK", _NUMBERS)
                yield
            finally:
                _mask("SIG_SETMASK", before)
    finally:
        is_over = True
        with ExitStack() as stack:  # It sends each, whatever the handlers of others raise.
            for number in reversed(arrived):
                stack.callback(signal.raise_signal, number)


def accept_signals() -> None:
    """In a process that was started in `signals_blocked`, let signals end it at once."""
    let_signals_kill()
    _mask("SIG_UNBLOCK", _NUMBERS)


def _mask(how: str, numbers: Iterable[int]) -> Iterable[int]:
    """Change the signals that wait, and return those that did before."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        return ()
    return signal.pthread_sigmask(getattr(signal, how), numbers)


def end_by_signal(number: int) -> NoReturn:
    """
    End this process by a signal, after all that is done at exit. A shell reports the status 128 +
    `number` of this and of an exit with that status, but ends its own loop or script only if the
    signal ended the program.
    """
    let_signals_kill()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # There is none, or it is closed.
            stream.flush()
    with suppress(ValueError):
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    sys.exit(128 + number)  # The signal is blocked, or this is not the main thread.
