"""What the user of an `elmo*` command sees when something goes wrong."""

import argparse
import logging
import os
import re
import shlex
import signal
import sys
import warnings
from functools import partial
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
import torch
from allennlp.commands import main

from allennlp_elmo_plugin.commands.command import Command, device_of
from tests.conftest import import_plugins_once
from tests.support.task_data import write_task_data
from tests.support.testing import read_files, write_random_elmo

ELMO = "elmo text out --top"
PROBE = "elmo-probe --elmo elmo --task pos --train labels --test labels --output out"
BENCHMARK = "elmo-benchmark --tasks sst5 --elmo elmo --data data --output out"

MISTAKES = r"""
elmo text out.npy => out.npy: the output is an HDF5 file; end its name with .hdf5
elmo text elmo/weights.hdf5 -f --model elmo/weights.hdf5 => elmo/weights.hdf5 is an input, too; ...
elmo-train text => the following arguments are required: -o/--output; see `allennlp elmo-train...
elmo-plot => the following arguments are required: PLOT; see `allennlp elmo-plot --help`
elmo-plot curves run => the following arguments are required: -o/--output; see `allennlp elmo-...
elmo-probe => the following arguments are required: --model/--elmo, --task, --train, --test, ...
elmo-benchmark => the following arguments are required: --tasks, --model/--elmo, --data, --out...
ELMO --bach-size 3 => unrecognized arguments: --bach-size 3; see `allennlp elmo --help`
ELMO --batch-size 0 => batch_size is 0; it must be at least 1
ELMO --include-package no_such => No module named 'no_such'
ELMO --cuda-device 99 => --cuda-device 99: torch finds 3 GPUs; -1 is the CPU
ELMO --ray-workers 0 => argument --ray-workers: 0 is less than 1; see `allennlp elmo --help`
ELMO --cuda-device -7 => argument --cuda-device: -7 is no GPU: give 0, 1, ..., or -1 for ...
ELMO --ray-workers 1 --cuda-device 2 => Ray chooses GPUs: give --gpus-per-worker, not --cuda-device
ELMO --ray-workers 2 --shard-index 1 => Ray's workers embed all shards: leave out --shard-index
ELMO --gpus-per-worker 1 => --gpus-per-worker needs --ray-workers; without Ray, --cuda-device
ELMO --weight-file '' => argument --weight-file: is empty; is a variable of the shell unset?; ...
elmo-nearest the text --layers= => argument --layers: is empty; ...
elmo-train text --validation text -o '' => argument -o/--output: is empty; ...
elmo latin out --top => latin, line 2: byte 0xe9 is not UTF-8...
elmo text old --top => old exists already; ...
elmo old old --top -f => old is an input, too; choose another output
elmo old OLD --top -f => OLD is an input, too; choose another output
elmo run out --top => run: expected a file, found a folder
elmo text elmo/weights.hdf5 --top -f --weight-file elmo/weights.hdf5 => elmo/weights.hdf5 is an ...
elmo-export elmo elmo => The folder elmo is not empty; choose another output, or --force ...
elmo-export --model elmo elmo => The folder elmo is not empty; choose another output, or ...
elmo-export elmo run -f => run is the folder of a training run; choose another output
elmo-import elmo out => elmo: has no vocabulary, or several; give --vocab-file
elmo-nearest the text --options-file elmo/options.json --weight-file text => text: not an HDF5...
elmo-nearest shore text --quiet => the word 'shore' is not in the text of 4 words; ...
elmo-nearest the text --weight-file elmo/weights.hdf5 --query 'The end' => the word 'the' is not ...
elmo-plot curves run -o a.gif => --output a.gif: the name must end with .svg, .png, .pdf
elmo-plot surprise text --model elmo -o a.html => elmo: has no softmax, ...
elmo-perplexity text --model=elmo => elmo: has no softmax, ...
elmo-nearest the text --model elmo/options.json --weight-file text => text: not an HDF5...
elmo-plot surprise elmo text -o a.html => elmo: has no softmax, ...
elmo-plot surprise tiny blank -o a.html => blank: has no words; give a tokenised text
PROBE --columns '1;2' => argument --columns: invalid numbers value: '1;2'; see `allennlp elmo-p...
BENCHMARK -o '{"random_seed": 5}' => --overrides: random_seed is set by --seeds; leave it out
BENCHMARK -o '{"trainer.num_epoch": 5}' => ... unknown in trainer: num_epoch
BENCHMARK --data missing => --data missing has no folder 'sst5' ...
""".strip().splitlines()


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory):
    """The folder where the mistakes are made."""
    import_plugins_once()
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "run").mkdir()
    write_random_elmo(folder / "elmo")
    write_task_data(folder / "data")
    for name, text in {
        "text": "the end\nthe other\n",
        "blank": " \n\n",
        "labels": "the DT x\nend NN x\n",
        "run/config.json": "{}",
        "run/metrics_epoch_0.json": '{"training_perplexity": 5}',
        "latin": "a\ncaf\xe9\n",
        **dict.fromkeys(("old", "run/best.th"), ""),
    }.items():
        (folder / name).write_text(text, encoding="latin1")
    if not (folder / "OLD").exists():  # the same file on Windows and macOS
        os.link(folder / "old", folder / "OLD")
    return folder


@pytest.mark.parametrize("row", MISTAKES)
def test_a_mistake_is_one_line(row, mistaken, monkeypatch, capsys):
    """It changes no file."""
    command, expected = row.split(" => ")
    for name, line in (("ELMO", ELMO), ("PROBE", PROBE), ("BENCHMARK", BENCHMARK)):
        command = re.sub(f"^{name}", line, command)
    monkeypatch.chdir(mistaken)
    monkeypatch.setattr(sys, "argv", ["allennlp", *shlex.split(command)])
    if "--cuda-device" in command:
        for name, value in (("is_available", True), ("device_count", 3)):
            monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    before = read_files(mistaken)
    with pytest.raises(SystemExit) as raised:
        main()
    assert raised.value.code == 2
    printed, shown = capsys.readouterr()
    *bars, line = shown.splitlines()
    assert printed == "" and ("shore" not in command or len(bars) == ("--quiet" not in command))
    assert all(re.match("(counting words|reading): 100%", bar) for bar in bars)
    pattern = re.escape(expected).replace(re.escape("..."), ".*")
    assert re.fullmatch(f"error: {pattern}", line)
    assert read_files(mistaken) == before


@pytest.mark.parametrize(
    "has_gpu, number, device",
    [(True, None, "cuda:0"), (False, None, "cpu"), (True, -1, "cpu"), (True, 2, "cuda:2")],
)
def test_a_gpu_is_used_if_there_is_one(has_gpu, number, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert device_of(argparse.Namespace(cuda_device=number)) == device


def run(work, *argv, options=None):
    """Run a command that does some work, and continues with these options."""
    methods = {"run": lambda *_: work(), "resume": lambda *_: options}
    command = type("Given", (Command,), {"name": "given", **methods})()
    parser = argparse.ArgumentParser("allennlp")
    command.add_subparser(parser.add_subparsers()).add_argument("words", nargs="*")
    with patch.object(sys, "argv", ["allennlp", "given", *argv]):
        args = parser.parse_args()
        args.func(args)


def test_only_what_may_be_a_bug_has_a_traceback(capsys):
    for error, line in (
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (MemoryError(), "not enough memory"),
        (KeyError("model"), "KeyError: 'model' (--debug shows where)"),
    ):
        with pytest.raises(SystemExit, match="2"):
            run(Mock(side_effect=error))
        assert capsys.readouterr().err == f"error: {line}\n"
        with pytest.raises(type(error)):
            run(Mock(side_effect=error), "--debug")
    with pytest.raises(TypeError):
        run(Mock(side_effect=TypeError("bug")))


def test_a_package_of_the_user_is_imported_with_its_modules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("user_package").mkdir()
    Path("user_package/part.py").write_text("", encoding="utf-8")
    run(lambda: None, "--include-package", "user_package")
    assert "user_package.part" in sys.modules


@pytest.mark.parametrize(
    "options, argv, line",
    [
        (None, ["a"], "interrupted"),
        ([], ["a b", "-q"], "interrupted; continue with: allennlp given 'a b' -q"),
        (["-q"], ["--", "\x1b"], "interrupted; continue with: allennlp given -q -- '\\x1b'"),
    ],
)
def test_ctrl_c_says_how_to_continue(options, argv, line, capsys):
    for by, shown in ((signal.SIGINT, line), (signal.SIGTERM, f"terminated{line[11:]}")):
        with pytest.raises(SystemExit, match=str(128 + by)):
            run(partial(signal.raise_signal, by), *argv, options=options)
        assert capsys.readouterr().err == f"{shown}\n"


def test_help_describes_the_command(monkeypatch, capsys):
    for argv, *patterns in (
        ["elmo-nearest -h", r"\n\nShow the .* vectors\.\n\n", r"-1 for the CPU; default: a\s+GPU"],
        ["-h", r"elmo-nearest\s+Show the occurrences of a word that have similar vectors"],
    ):
        monkeypatch.setattr(sys, "argv", ["allennlp", *argv.split()])
        with pytest.raises(SystemExit):
            main()
        printed = capsys.readouterr().out
        assert all(re.search(pattern, printed) for pattern in patterns)


def test_what_others_say_is_left_out(capsys, monkeypatch):
    # Without those that other tests may have left, with closed files.
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler(sys.stderr)])
    before = root.level, list(warnings.filters)

    def talk():
        warnings.warn("their warning", stacklevel=1)
        for name in ("allennlp_elmo_plugin.x", "allennlp.x", "allennlp_elmo_plugins"):
            logging.getLogger(name).warning("%s warns", name)
            logging.getLogger(name).info("%s informs", name)
        logging.getLogger("allennlp.x").error("their error")
        logging.getLogger("cached_path._cached_path").error("Our error says it, too")

    run(talk)
    assert capsys.readouterr().err == "allennlp_elmo_plugin.x warns\ntheir error\n"
    assert (root.level, warnings.filters) == before
    with pytest.warns(UserWarning, match="their warning"):
        run(talk, "--debug")
    assert "allennlp.x warns" in capsys.readouterr().err
