import atexit
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from allennlp_elmo_plugin.signals import end_by_signal, let_signals_kill
from tests.support.testing import fork


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.default_int_handler])
def test_output_and_exit_functions_come_first(number: int, before: Any, tmp_path: Path) -> None:
    def end() -> None:
        signal.signal(number, before)
        sys.stdout = open(tmp_path / "output", "w", encoding="utf-8")
        atexit.register(print, "the last line")
        end_by_signal(number)

    assert fork(end) == number
    assert (tmp_path / "output").read_text(encoding="utf-8") == "the last line\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_another_signal_during_the_end(number: int) -> None:
    def end() -> None:
        atexit.register(time.sleep, 100)
        threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
        end_by_signal(signal.SIGINT)

    assert fork(end) == number


def test_no_output() -> None:
    def end() -> None:
        read, write = os.pipe()
        os.close(read)
        sys.stdout, sys.stderr = open(write, "w"), None  # type: ignore[assignment]
        sys.stdout.write("to nobody")
        end_by_signal(signal.SIGINT)

    assert fork(end) == signal.SIGINT


def test_in_a_thread() -> None:
    """Handlers, and thus the end by a signal, belong to the main thread."""

    def end() -> None:
        with pytest.raises(SystemExit) as raised:
            end_by_signal(signal.SIGTERM)
        codes.append(raised.value.code)

    def start() -> None:
        let_signals_kill()
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        assert codes == [143]

    codes: Any = []
    assert fork(start) == 0
