"""What the user of an `elmo*` command sees when something goes wrong."""

import argparse
import logging
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from allennlp.commands import main
from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import install_sigterm_handler

from allennlp_elmo_plugin.commands import elmo_vocab
from allennlp_elmo_plugin.commands.command import Command, run
from tests.support.testing import fork, refused

COMMANDS = [
    *("elmo", "elmo-vocab", "elmo-export", "elmo-import", "elmo-benchmark"),
    *("elmo-configs", "elmo-nearest", "elmo-plot", "elmo-probe"),
]


def arguments(**keywords: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"debug": False, "quiet": False, "packages": [], **keywords})


def fail(error: BaseException, capsys: Any, status: Optional[int] = 2) -> str:
    def function(args: argparse.Namespace) -> None:
        raise error

    with pytest.raises(SystemExit) as raised:
        run(function, arguments())
    assert raised.value.code == status
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "error, line",
    [
        (ConfigurationError("a: is\n  wrong\n"), "error: a: is wrong"),
        (ValueError("file, line 3: no word"), "error: file, line 3: no word"),
        (FileNotFoundError(2, "No such file or directory", "x  y"), "error: x  y: No such file or"),
        (OSError(28, "No space left on device"), "error: [Errno 28] No space left on device"),
        (OSError("another process"), "error: another process"),
        (PermissionError(13, "Permission denied", b"caf\xe9"), r"error: caf\udce9: Permission den"),
        (KeyError("model"), "error: KeyError: 'model' (--debug shows where)"),
        (
            RuntimeError("RUNTIME ERROR: a\n\tb:1\n"),
            "error: RuntimeError: RUNTIME ERROR: a b:1 (--",
        ),
        (EOFError(), "error: EOFError"),
        (MemoryError(), "error: not enough memory"),
        (ConfigurationError("\x1b[2Jred\0\u202e"), r"error: \x1b[2Jred\x00\u202e"),
        (ConfigurationError("東京 naïve"), "error: 東京 naïve"),
    ],
)
def test_a_mistake_is_one_line(error: Exception, line: str, capsys: Any) -> None:
    message = fail(error, capsys)
    assert message.startswith(line)
    assert message.index("\n") == len(message) - 1


def test_a_long_message_is_cut(capsys: Any) -> None:
    message = fail(ValueError(f"file: {'x' * 10_000_000} is no word"), capsys)
    assert len(message) < 3000 and message.endswith("xx is no word\n") and "x ... x" in message


def test_what_is_no_mistake_is_not_hidden() -> None:
    for error in (TypeError("bug"), AssertionError("bug"), IndexError("bug"), SystemExit(5)):

        def function(args: argparse.Namespace, error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)):
            run(function, arguments())


def test_debug_shows_the_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = str(tmp_path / "missing")
    monkeypatch.setattr(sys, "argv", ["allennlp", "elmo-export", missing, "out", "--debug"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="model .*: there is no"):
        main()


def test_interrupts(capsys: Any) -> None:
    assert fail(KeyboardInterrupt(), capsys, 130) == "interrupted\n"
    assert fail(BrokenPipeError(32, "Broken pipe"), capsys, 141) == ""


@pytest.mark.parametrize(
    "option, given, line",
    [
        (None, ["a"], "interrupted before anything was saved; run the same command again\n"),
        ("", ["a b", "-f"], "interrupted; continue with: allennlp elmo 'a b' -f\n"),
        ("--resume", ["--", "a"], "interrupted; continue with: allennlp elmo --resume -- a\n"),
        ("--resume", ["a", "--resume"], "interrupted; continue with: allennlp elmo a --resume\n"),
        ("", ["\x1b"], "interrupted; continue with: allennlp elmo '\\x1b'\n"),
    ],
)
def test_interrupts_say_how_to_go_on(
    option: Optional[str],
    given: List[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    def function(args: argparse.Namespace) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["allennlp", "elmo", *given])
    with pytest.raises(SystemExit) as raised:
        run(function, arguments(), lambda args: option, "allennlp elmo")
    assert raised.value.code == 130
    assert capsys.readouterr().err == line


def test_sigterm_is_not_taken_for_an_error(capsys: Any) -> None:
    def function(args: argparse.Namespace) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(100)
        except Exception as error:  # as around libraries
            raise ValueError("not an HDF5 file") from error

    before = signal.getsignal(signal.SIGTERM)
    install_sigterm_handler()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as raised:
            run(function, arguments())
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
    assert raised.value.code == 143
    assert capsys.readouterr().err == "terminated\n"


def test_every_command_is_one_of_these() -> None:
    ours = [name for name in Subcommand.list_available() if name.startswith("elmo")]
    assert sorted(ours) == sorted(COMMANDS)
    assert all(issubclass(Subcommand.by_name(name), Command) for name in ours)  # type: ignore


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_arguments(command: str, capsys: Any) -> None:
    message = refused(capsys, command)
    assert "the following arguments are required" in message
    assert message.endswith(f"; see `allennlp {command} --help`\n") or "pytest" in message


@pytest.mark.parametrize(
    "given, message",
    [
        (["elmo", "a", "b", "--top", "--bach-size", "3"], "unrecognized arguments: --bach-size 3"),
        (["elmo", "a", "b", "--top", "--batch-size", "x"], "--batch-size: invalid int value: 'x'"),
        (["elmo", "a", "b", "--top", "--dtype", "float8"], "--dtype: invalid choice: 'float8'"),
        (["elmo-vocab", "a", "-o", "b", "--min-count", "0"], "--min-count is 0"),
        (["elmo-vocab", "a", "-o", ""], "the output is an empty name"),
        (["elmo-configs", "a", "--include-package", "no_such"], "--include-package no_such: No"),
        (["elmo-configs", "a", "--include-package", "../x"], "--include-package ../x: "),
        (["elmo-configs", "a", "--include-package", ""], "--include-package : "),
        (["elmo", "missing", "a", "--top"], "missing"),
        (["elmo", ".", "a", "--top"], "."),
        (["elmo", "empty", "a", "--top", "--options-file", "missing"], "there is no missing"),
        (["elmo", "empty", "a", "--top", "--options-file", "empty", "--weight-file", "x"], "x"),
        (["elmo", "empty", "a/", "--top"], "give the name of a file"),
        (["elmo", "empty", ".", "--top"], "is a folder, a device or a pipe"),
        (["elmo", "empty", "/dev/null", "--top", "-f"], "/dev/null: is a folder, a device"),
        (["elmo", "empty", "a", "--top", "--cuda-device", "99"], "--cuda-device is 99, but"),
        (["elmo", "empty", "a", "--top", "--cuda-device", "9" * 30], "--cuda-device is 9999"),
        (["elmo", "a", "empty", "-f", "--top", "--options-file", "empty"], "the same file, empty"),
        (["elmo", "a", "empty", "-f", "--top", "--weight-file", "empty"], "the same file, empty"),
        (["elmo", "a", "empty", "-f", "--top", "--vocab-path", "empty"], "the same file, empty"),
        (["elmo-vocab", "missing", "-o", "b"], "missing does not exist"),
        (["elmo-vocab", "empty", "-o", "empty"], "empty is a file, not a folder"),
        (
            ["elmo-export", "missing", "b"],
            "error: model 'missing': there is no missing; nor is it one of",
        ),
        (
            ["elmo-export", "empty", "b"],
            "model 'empty': there is no weights.hdf5 beside it. A model is the",
        ),
        (["elmo-export", ".", "b"], "the folder is not that of a training run"),
        (
            ["elmo-import", "missing", "b"],
            "error: model 'missing': there is no missing; nor is it one of",
        ),
        (["elmo-import", ".", "b"], "there is no weights.hdf5"),
        (
            ["elmo-import", "empty", "b"],
            "model 'empty': there is no weights.hdf5 beside it. A model is the",
        ),
    ],
)
def test_mistakes(
    given: List[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    assert message in refused(capsys, *given)
    assert os.listdir(tmp_path) == ["empty"]


def test_what_others_say_is_left_out(
    caplog: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = logging.StreamHandler(sys.stderr)
    # Without those that other tests may have left, with closed files.
    monkeypatch.setattr(logging.getLogger(), "handlers", [caplog.handler, handler])
    ours = logging.getLogger("allennlp_elmo_plugin.commands.elmo_vocab")
    others = logging.getLogger("allennlp.models.archival")
    like_ours = logging.getLogger("allennlp_elmo_plugins")

    def talk(args: argparse.Namespace) -> None:
        warnings.warn_explicit("their warning", UserWarning, "rouge.py", 6, module="rouge.rouge")
        for logger in (ours, others, like_ours):
            logger.warning("%s warning", logger.name)
            logger.info("%s info", logger.name)
        others.error("their error")
        logging.getLogger("cached_path._cached_path").error("Our error says it, too")

    before = list(warnings.filters)
    run(talk, arguments())
    assert capsys.readouterr().err == f"{ours.name} warning\ntheir error\n"
    with pytest.warns(UserWarning, match="their warning"):
        run(talk, arguments(debug=True))
    assert f"{others.name} warning" in capsys.readouterr().err
    assert warnings.filters == before and not handler.filters


def test_our_warnings_are_shown() -> None:
    def warn(args: argparse.Namespace) -> None:
        warnings.warn_explicit("ours", UserWarning, "x.py", 1, module="allennlp_elmo_plugin.x")

    with pytest.raises(UserWarning, match="ours"):  # as pyproject.toml says
        run(warn, arguments())


def test_import_says_nothing_and_leaves_logging_alone(subprocess_environment: Any) -> None:
    program = """if True:
        import logging, sys, warnings
        logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(name)s %(message)s")
        from allennlp.common.util import import_module_and_submodules
        import_module_and_submodules("allennlp", exclude={"allennlp.sanity_checks"})
        root = logging.getLogger()
        state = root.level, root.handlers[:], root.manager.disable
        filters = warnings.filters[:]
        sys.stdout.write("START\\n")
        import allennlp_elmo_plugin
        sys.stdout.write("END\\n")
        assert state == (root.level, root.handlers, root.manager.disable)
        ((_, message, *_),) = [each for each in warnings.filters if each not in filters]
        assert "amp" in message.pattern
        assert not root.handlers[0].filters
    """
    process = subprocess.run(
        [sys.executable, "-c", program],
        env=subprocess_environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split("START\n")[1] == "END\n"


PROGRAM = """if True:
    import sys
    import allennlp_elmo_plugin
    from allennlp.commands import main
    print("started", flush=True)
    print("started", file=sys.stderr)  # after what other packages say when they are imported
    main("allennlp")
"""
"""AllenNLP's own program, without the plugins that it imports before ours."""


@pytest.mark.parametrize(
    "file_name, status, stdout, stderr",
    [
        ("missing", 2, "started\n", r"error: missing does not exist .*\n"),
        ("text", 141, None, r"counting words: 100%.*\n"),
    ],
    ids=["a mistake", "nobody reads on"],
)
def test_process(
    file_name: str,
    status: int,
    stdout: Optional[str],
    stderr: str,
    subprocess_environment: Dict[str, str],
    tmp_path: Path,
) -> None:
    (tmp_path / "text").write_text("a b\n", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "elmo-vocab", file_name, "-o", "out"],
        cwd=tmp_path,
        env=subprocess_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    if stdout is None:
        process.stdout.readline()
        process.stdout.close()
    else:
        assert process.stdout.read() == stdout
    printed = process.stderr.buffer.read().decode("utf-8")  # type: ignore
    assert re.fullmatch(stderr, printed.split("started\n")[1])
    assert process.wait() == status


@pytest.mark.parametrize(
    "number, line", [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")]
)
def test_stopped(number: int, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ends by the signal, so that a loop of a shell does, too."""

    def wait(*_: Any) -> None:
        (tmp_path / "started").touch()
        time.sleep(100)

    def command() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        install_sigterm_handler()
        with open(tmp_path / "stderr", "w", encoding="utf-8") as stderr:
            sys.stderr = stderr
            main()

    (tmp_path / "text").write_text("a b\n", encoding="utf-8")
    monkeypatch.setattr(elmo_vocab, "count_words", wait)
    given = ["elmo-vocab", str(tmp_path / "text"), "-o", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["allennlp", *given])
    child = fork(command, wait=False)
    while not (tmp_path / "started").exists():
        assert os.waitpid(child, os.WNOHANG)[0] == 0
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(child, number)
    assert os.waitpid(child, 0)[1] == number
    assert (tmp_path / "stderr").read_text(encoding="utf-8") == f"{line}\n"
    assert sorted(os.listdir(tmp_path)) == ["started", "stderr", "text"]


def test_output_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def function(args: argparse.Namespace) -> None:
        print("done")

    with open("/dev/full", "w", encoding="utf-8") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(SystemExit) as raised:
            run(function, arguments())
        assert raised.value.code == 2
    line = "error: standard output: cannot write: No space left on device\n"
    assert capsys.readouterr().err == line
