"""What the user of an `elmo*` command sees when something goes wrong."""

import argparse
import logging
import os
import re
import shlex
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Callable, List, Optional

import pytest
from allennlp.commands import main
from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import install_sigterm_handler

from allennlp_elmo_plugin.commands import elmo_vocab
from allennlp_elmo_plugin.commands.command import Command
from tests.conftest import import_plugins_once
from tests.support.task_data import write_task_data
from tests.support.testing import fork, read_files, write_random_elmo

PROBE = "elmo-probe --elmo elmo --task pos --train labels --test labels --output out"
BENCHMARK = "elmo-benchmark --tasks sst5 --elmo elmo --data data --output out"

MISTAKES = r"""
elmo => the following arguments are required: input_file, output_file; see `allennlp elmo --help`
elmo-vocab => the following arguments are required: FILES, -o/--output; see `allennlp elmo-vocab ...
elmo-export => the following arguments are required: MODEL, OUTPUT; see `allennlp elmo-export --help`
elmo-import => the following arguments are required: SOURCE, OUTPUT_DIR; see `allennlp elmo-import ...
elmo-configs => the following arguments are required: DIR; see `allennlp elmo-configs --help`
elmo-nearest => the following arguments are required: WORD, FILES; see `allennlp elmo-nearest --help`
elmo-plot => the following arguments are required: PLOT; see `allennlp elmo-plot --help`
elmo-probe => the following arguments are required: --elmo, --task, --train, --test, --output; see ...
elmo-benchmark => the following arguments are required: --tasks, --elmo, --data, --output; see `all...
ELMO => one of the arguments --all --top --average is required; see `allennlp elmo --help`
ELMO --all --top => argument --top: not allowed with argument --all; see `allennlp elmo --help`
ELMO --top --bach-size 3 => unrecognized arguments: --bach-size 3; see `allennlp elmo --help`
ELMO --top --batch-size x => argument --batch-size: invalid int value: 'x'; see `allennlp elmo --help`
ELMO --top --batch-size 0 => batch_size is 0; it must be at least 1
ELMO --top --batch-tokens 0 => batch_tokens is 0; it must be at least 1
ELMO --top --include-package no_such => No module named 'no_such'
ELMO --top --options-file missing => there is no missing...
ELMO --top --options-file elmo/options.json --weight-file missing => there is no missing...
ELMO --top --options-file elmo/options.json --weight-file text => text: not an HDF5 file...
ELMO --top --vocab-path missing => there is no file missing to read
ELMO --top --cuda-device 99 => argument --cuda-device: torch finds no GPU here, so 99 is none; leave it out to use the CPU; see `allennlp elmo --help`
ELMO --top --num-shards 2 --shard-index 2 => there is no shard 2 of 2, from 0
ELMO --top --num-shards 2 --initial-state carried => a text of carried states can't be divided; use settled ones, or zero
ELMO --top --include-sentence-indices --forget-sentences => sentence indices ...
ELMO --top --ray-workers 0 => argument --ray-workers: 0 is less than 1; see `allennlp elmo --help`
ELMO --top --ray-workers 2 => --num-shards is 1; give more than --ray-workers
ELMO --top --ray-workers 1 --cuda-device -2 => Ray chooses GPUs: give --gpus-per-worker instead of --cuda-device
elmo - out --top --ray-workers 1 => Ray's workers all read the text, so it must be a file, not a pipe
elmo missing out --top => there is no file missing to read
elmo latin out --top => latin, line 2: byte 0xe9 is not UTF-8...
elmo text out/ --top => ...: is a folder, a device or a pipe; give the name of a file
elmo text missing/out --top => ...missing: there is no such folder; create it first
elmo text /dev/null --top -f => /dev/null: is a folder, a device or a pipe; give the name of a file
elmo text old --top => old exists already; ...
elmo old old --top -f => input and output are the same file, old; choose another output
elmo text old --top -f --vocab-path old => input and output are the same file, old; choose another output
elmo text elmo/weights.hdf5 --top -f --options-file elmo => input and output are the same file, elmo/weights.hdf5; choose another output
elmo-vocab missing -o out => missing does not exist...
elmo-vocab empty -o out => There is no text to read: ...empty... is empty
elmo-vocab blank -o out => no word of the 2 lines is in the vocabulary: give more text, ...
elmo-vocab text -o out --min-count 0 => argument --min-count: 0 is less than 1; see `allennlp elmo-vocab --help`
elmo-vocab text -o out --min-count 3 => no word of the 2 lines is in the vocabulary: give more text, lower --min-count ...
elmo-vocab text -o out --max-size 3 => no word of the 2 lines is in the vocabulary: ... raise --max-size, which counts <S>, </S>, <UNK>, too
elmo-vocab text -o '' => the output is an empty name; give a folder
elmo-vocab text -o text => text is a file, not a folder...
elmo-export missing out => there is no missing; nor is it one of the models ...
elmo-export elmo elmo => The folder elmo is not empty; choose another output, or --force ...
elmo-export elmo old --zip => old exists; choose another output, or --force to replace it
elmo-export elmo run -f => run is the folder of a training run; choose another output
elmo-export elmo missing/out.zip --zip => ...missing: there is no such folder; create it first
elmo-import missing out => there is no missing; nor is it one of the models ...
elmo-import elmo out => elmo: has no vocabulary, or several; give --vocab-file, a word a line, in the order of their ids
elmo-import elmo out --vocab-file missing => missing: ...
elmo-import run out => run: an archive or training run of AllenNLP needs no import
elmo-configs text/x => text/x...: Not a directory
elmo-nearest shore text => the word 'shore' is not in the text of 4 words; ...
elmo-nearest the missing => missing does not exist...
elmo-nearest the text --query 'The end' => the word 'the' is not in the query 'The end'
elmo-nearest the text --layers old --options-file tiny => --layers has the vectors of the text alone: omit query and model
elmo-plot pie => argument PLOT: invalid choice: 'pie' ...
elmo-plot curves run => the following arguments are required: -o/--output; see `allennlp elmo-plot curves --help`
elmo-plot curves run -o a.gif => --output a.gif: the name must end with .svg, .png, .pdf
elmo-plot curves run -o missing/a.svg => ...missing: there is no such folder; create it first
elmo-plot curves run -o a.svg --log => unrecognized arguments: --log; see `allennlp elmo-plot curves --help`
elmo-plot map the text -o a.png => --output a.png: the name must end with .html, .htm
elmo-plot map shore text -o a.html => the word 'shore' is not in the text of 4 words; ...
elmo-plot map the text -o a.html --labels => text, line 1: with --labels, a line is LABEL, a tab and the sentence
elmo-plot map the text -o a.html --labels --groups 2 => argument --groups: not allowed with argument --labels; ...
elmo-plot surprise elmo text -o a.html => elmo: has no softmax, ...
elmo-plot surprise missing text -o missing/a.html => ...missing: there is no such folder; create it first
elmo-plot surprise tiny blank -o a.html => blank: has no words; give a tokenised text
PROBE --task ner => argument --task: invalid choice: 'ner' ...
PROBE --elmo missing => there is no missing; ...
PROBE --columns '1;2' => argument --columns: invalid numbers value: '1;2'; see `allennlp elmo-probe --help`
PROBE --columns 1,2,3 => --columns: give those of word, tag, from 1
PROBE --columns 0,1 => --columns: give those of word, tag, from 1
PROBE --max-examples 0 => argument --max-examples: 0 is less than 1; see `allennlp elmo-probe --help`
BENCHMARK --tasks nothing => --tasks: 'nothing' begins with no kind of ...
BENCHMARK --seeds 0 => argument --seeds: 0 is less than 1; see `allennlp elmo-benchmark --help`
BENCHMARK --data missing => --data missing has no folder 'sst5' ...
BENCHMARK --elmo missing => there is no missing...
BENCHMARK --configs missing => --configs missing: there is no missing/sst5.jsonnet
BENCHMARK --output elmo => --output elmo: the folder is not empty, and no benchmark
BENCHMARK -o '{' => ...
""".strip().splitlines()  # noqa: E501


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where the mistakes are made."""
    import_plugins_once()
    folder = tmp_path_factory.mktemp("mistakes")
    for name in ("elmo", "run", "folder.svg"):
        (folder / name).mkdir(parents=True)
    write_random_elmo(folder / "elmo")
    write_task_data(folder / "data")
    for name, text in {
        "text": "the end\nthe other\n",
        "blank": " \n\n",
        "labels": "the DT x\nend NN x\n",
        "other": "the A\n",
        "run/config.json": "{}",
        "run/metrics_epoch_0.json": '{"training_perplexity": 5}',
        **dict.fromkeys(("empty", "old", "run/best.th"), ""),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "latin").write_bytes(b"a\ncaf\xe9\n")
    return folder


@pytest.mark.parametrize("row", MISTAKES)
def test_a_mistake_is_one_line(
    row: str, mistaken: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Nothing is written, and nothing that is there changes."""
    given, expected = row.split(" => ")
    for name, line in (("ELMO", "elmo text out"), ("PROBE", PROBE), ("BENCHMARK", BENCHMARK)):
        given = re.sub(f"^{name}", line, given)
    monkeypatch.chdir(mistaken)
    monkeypatch.setattr(sys, "argv", ["allennlp", *shlex.split(given)])
    before = read_files(mistaken)
    with pytest.raises(SystemExit) as raised:
        main()
    assert raised.value.code == 2
    printed, shown = capsys.readouterr()
    *bars, line = shown.splitlines()
    assert printed == "" and all(re.match("(counting words|reading): 100%", bar) for bar in bars)
    pattern = re.escape(expected).replace(re.escape("..."), ".*")
    assert re.fullmatch(f"error: {pattern}", line)
    assert read_files(mistaken) == before


class Given(Command):
    """A command that does what a test says."""

    name = "given"

    def __init__(self, function: Callable[[], Any], option: Optional[str]) -> None:
        self.function, self.option = function, option

    def run(self, args: argparse.Namespace) -> None:
        self.function()

    def resume(self, args: argparse.Namespace) -> Optional[str]:
        return self.option


def run(function: Callable[[], Any], *argv: str, option: Optional[str] = None) -> None:
    parser = argparse.ArgumentParser("allennlp")
    subparser = Given(function, option).add_subparser(parser.add_subparsers())
    subparser.add_argument("words", nargs="*")
    sys.argv[1:] = ["given", *argv]
    args = parser.parse_args()
    args.func(args)


@pytest.fixture(autouse=True)
def own_argv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["allennlp"])


def fail(error: BaseException, capsys: Any, status: int = 2, **given: Any) -> str:
    def function() -> None:
        raise error

    with pytest.raises(SystemExit) as raised:
        run(function, *given.pop("argv", ()), **given)
    assert raised.value.code == status
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "error, line",
    [
        (ConfigurationError("a: is\n  wrong\n"), "a: is wrong"),
        (
            FileNotFoundError(2, "No such file or directory", "x  y"),
            "x  y: No such file or direc...",
        ),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (KeyError("model"), "KeyError: 'model' (--debug shows where)"),
        (RuntimeError("RUNTIME ERROR: a\n\tb:1\n"), "RuntimeError: RUNTIME ERROR: a b:1 (--de..."),
        (EOFError(), "EOFError"),
        (MemoryError(), "not enough memory"),
    ],
)
def test_errors_of_libraries_are_one_line(error: Exception, line: str, capsys: Any) -> None:
    pattern = re.escape(line).replace(re.escape("..."), ".*")
    assert re.fullmatch(f"error: {pattern}\n", fail(error, capsys))


@pytest.mark.parametrize("error", [TypeError("bug"), IndexError("bug"), SystemExit(5)])
def test_a_bug_is_not_taken_for_a_mistake(error: BaseException) -> None:
    def function() -> None:
        raise error

    with pytest.raises(type(error)):
        run(function)


def test_debug_shows_the_traceback() -> None:
    def function() -> None:
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        run(function, "--debug")


@pytest.mark.parametrize(
    "option, argv, line",
    [
        (None, ["a"], "interrupted\n"),
        ("", ["a b", "-q"], "interrupted; continue with: allennlp given 'a b' -q\n"),
        ("-q", ["--", "a"], "interrupted; continue with: allennlp given -q -- a\n"),
        ("-q", ["a", "-q"], "interrupted; continue with: allennlp given a -q\n"),
        ("", ["\x1b"], "interrupted; continue with: allennlp given '\\x1b'\n"),
    ],
)
def test_ctrl_c_says_how_to_continue(
    option: Optional[str], argv: List[str], line: str, capsys: Any
) -> None:
    assert fail(KeyboardInterrupt(), capsys, 130, argv=argv, option=option) == line


@pytest.mark.parametrize("by", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_command_by_itself(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a loop of a shell ends, too; what was begun is gone."""

    def wait(*_: Any) -> None:
        try:
            os.kill(os.getpid(), signal.Signals[by])
            time.sleep(100)
        except Exception as error:  # as around libraries
            raise ValueError("not an HDF5 file") from error

    def command() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        install_sigterm_handler()
        with open(tmp_path / "stderr", "w", buffering=1) as sys.stderr:
            main()

    (tmp_path / "text").write_text("a b\n", encoding="utf-8")
    monkeypatch.setattr(elmo_vocab, "count_words", wait)
    given = ["elmo-vocab", str(tmp_path / "text"), "-o", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["allennlp", *given])
    assert fork(command) == signal.Signals[by]
    line = "interrupted\n" if by == "SIGINT" else "terminated\n"
    assert (tmp_path / "stderr").read_text(encoding="utf-8") == line
    assert sorted(os.listdir(tmp_path)) == ["stderr", "text"]


def test_a_reader_that_has_gone_is_no_error(capfd: Any) -> None:
    def command() -> None:
        read, write = os.pipe()
        os.close(read)
        sys.stdout = open(write, "w", encoding="utf-8")
        run(lambda: print("to nobody"))

    assert fork(command) == signal.SIGPIPE
    assert capfd.readouterr().err == ""


def test_every_command_is_one_of_these() -> None:
    ours = [name for name in Subcommand.list_available() if name.startswith("elmo")]
    assert sorted(ours) == sorted(row.split(" => ")[0] for row in MISTAKES[:9])
    assert all(issubclass(Subcommand.by_name(name), Command) for name in ours)  # type: ignore


def test_help_describes_the_command(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["allennlp", "elmo-vocab", "--help"])
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr().out
    assert (
        "\nMake the vocabulary of a language model from a corpus.\n\n  allennlp elmo-v" in printed
    )
    assert "leave out words that are rarer (default = 1)" in printed
    for option in ("--include-package", "--quiet", "--debug"):
        assert option in printed


def test_what_others_say_is_left_out(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without those that other tests may have left, with closed files.
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler(sys.stderr)])
    before = root.level, list(warnings.filters)

    def talk() -> None:
        warnings.warn_explicit("their warning", UserWarning, "rouge.py", 6, module="rouge.rouge")
        for name in ("allennlp_elmo_plugin.x", "allennlp.x", "allennlp_elmo_plugins"):
            logging.getLogger(name).warning("%s warns", name)
            logging.getLogger(name).info("%s informs", name)
        logging.getLogger("allennlp.x").error("their error")
        logging.getLogger("cached_path._cached_path").error("Our error says it, too")

    run(talk)
    assert capsys.readouterr().err == "allennlp_elmo_plugin.x warns\ntheir error\n"
    with pytest.warns(UserWarning, match="their warning"):
        run(talk, "--debug")
    assert "allennlp.x warns" in capsys.readouterr().err
    assert (root.level, warnings.filters) == before
