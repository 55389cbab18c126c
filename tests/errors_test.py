import atexit
import os
import signal
import sys
from pathlib import Path

import pytest

from allennlp_elmo_plugin.errors import Terminated, end_by_signal, terminable
from tests.support.testing import fork


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_output_and_exit_functions_come_first(number: int, tmp_path: Path) -> None:
    def end() -> None:
        sys.stdout = open(tmp_path / "output", "w", encoding="utf-8")
        atexit.register(print, "the last line")
        end_by_signal(number)

    assert fork(end) == number
    assert (tmp_path / "output").read_text(encoding="utf-8") == "the last line\n"


def test_no_output() -> None:
    def end() -> None:
        read, write = os.pipe()
        os.close(read)
        sys.stdout, sys.stderr = open(write, "w"), None  # type: ignore[assignment]
        sys.stdout.write("to nobody")
        end_by_signal(signal.SIGINT)

    assert fork(end) == signal.SIGINT


def test_sigterm_is_an_interrupt() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), terminable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
