import logging
import signal
import sys
from typing import Any

import pytest

from allennlp_elmo_plugin.quiet_imports import _Muted, quiet_imports, quiet_start


def test_prints_nothing_but_errors(capsys: Any, caplog: pytest.LogCaptureFixture) -> None:
    with quiet_imports():
        kept = sys.stderr
        print("noise", file=sys.stderr)
        logging.getLogger("others").warning("noise")
        logging.getLogger("others").error("could not be loaded")
        print("output")
    assert kept is not sys.stderr and logging.root.manager.disable == logging.NOTSET
    assert capsys.readouterr() == ("output\n", "")
    assert caplog.messages == ["could not be loaded"]


def test_modules_may_keep_the_stream(capsys: Any) -> None:
    with quiet_imports():
        kept = sys.stderr
    assert kept.write("shown") == 5
    kept.flush()
    with quiet_imports():
        print("noise", file=kept)
    assert capsys.readouterr().err == "shown"
    assert kept.encoding == sys.stderr.encoding


def test_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with quiet_imports():
        kept: Any = sys.stderr
    print("nowhere", file=kept, flush=True)


def test_an_import_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = sys.stderr
    with pytest.raises(ModuleNotFoundError):
        with quiet_imports():
            import no_such_module  # type: ignore  # noqa: F401
    assert sys.stderr is stderr and not _Muted.muted


@pytest.mark.parametrize(
    "handler, at_start",
    [
        (signal.default_int_handler, signal.SIG_DFL),
        (signal.SIG_IGN, signal.SIG_IGN),  # as with nohup
    ],
)
def test_start_can_be_interrupted(handler: Any, at_start: Any) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        with quiet_start():
            assert signal.getsignal(signal.SIGINT) == at_start
        assert signal.getsignal(signal.SIGINT) == handler
        with pytest.raises(ImportError), quiet_start():
            raise ImportError
        assert signal.getsignal(signal.SIGINT) == handler
    finally:
        signal.signal(signal.SIGINT, before)
