"""
`elmo-train` killed and resumed, and what it refuses. Each test trains for two epochs of a dozen
batches. The same loop stands against AllenNLP's in tests/plugin/training.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import sys

import pytest
import torch

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.__main__ import main
from allennlp_elmo_plugin.analysis.training_curves import read_run
from allennlp_elmo_plugin.commands import elmo_train as elmo_train_module
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.files.locks import locked
from allennlp_elmo_plugin.training import text_batches
from tests.support.elmo_train_runs import (
    elmo_train,
    losses,
    metrics,
    start_processes,
    write_config,
    write_data,
    write_size,
)
from tests.support.testing import fork, limit_file_size, read_arrays, read_files


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


def write_run(folder, data):
    """Write a size; return the arguments of `elmo-train`."""
    size = write_size(write_config(folder, data, {}), folder / "size.json")
    text = data / "heldout.txt"
    return [text, "--validation", text, "--size", size, "--vocab", data / "vocabulary"]


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A run that was never stopped: its folder, losses and arguments."""
    folder = tmp_path_factory.mktemp("trained")
    arguments = write_run(folder, data)
    elmo_train([*arguments, "-o", folder / "whole"], folder / "log")
    return folder / "whole", losses(folder / "log"), arguments


def assert_same_runs(folder, log, trained):
    whole, expected, _ = trained
    assert losses(log) == expected
    assert metrics(folder) == metrics(whole)
    for name in ("weights", "softmax", "adagrad"):
        actual, arrays = (read_arrays(path / f"{name}.hdf5") for path in (folder, whole))
        assert actual.keys() == arrays.keys()
        assert all((actual[key] == arrays[key]).all() for key in arrays)


def resumed(folder, arguments):
    """The arguments of the same command, to be repeated."""
    has_run = (folder / "training.json").exists()
    return [*arguments, "-o", folder, *["--resume"] * has_run]


@pytest.mark.parametrize(
    "n_words, size, said",
    [
        (6_000, "demo", "6,000 words"),
        (153_000, "tiny_corpus", "153,000 words"),
        (1_503_000, "small", "more than 1,5"),
    ],
)
def test_the_number_of_words_chooses_the_size(n_words, size, said, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(elmo_train_module, "train_run", lambda *_: None)
    words = [f"w{i}" for i in range(3_000)]
    text = tmp_path / "text"
    text.write_text("\n".join(" ".join(words[i : i + 20]) for i in range(0, 3_000, 20)) + "\n")
    text.write_text(text.read_text() * (n_words // 3_000))
    arguments = [text, "--validation", text, "-o", tmp_path / "run"]
    main(["elmo-train", *map(str, arguments)])
    assert f"{said}" in capsys.readouterr().out.splitlines()[0]
    run = json.loads((tmp_path / "run" / "training.json").read_text(encoding="utf-8"))
    assert run["size"] == size


def test_a_vocabulary_of_no_more_words_than_samples_has_the_full_softmax(
    data, tmp_path, capsys, caplog
):
    """`tiny` was trained with 2,048 samples."""
    text = data / "heldout.txt"
    new = [text, "--validation", text, "--from", "tiny", "--vocab", data / "vocabulary"]
    elmo_train([*new, "--num-epochs", 1, "--batch-size", 2, "-o", tmp_path / "run"])
    message = "The vocabulary has 63 words, no more than the 2,048 negative samples: the full soft"
    assert caplog.text.count(message) == 1
    assert f"{text}: 100% of its sentences are in the training text" in caplog.text
    run = json.loads((tmp_path / "run" / "training.json").read_text(encoding="utf-8"))
    assert run["model"]["num_samples"] == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert f"`allennlp-elmo-plugin elmo-perplexity {tmp_path / 'run'} TEXT`" in last


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("n_changes", [0, 30, 60, 75, 90, 130])
def test_a_kill_at_a_change_of_the_file_system(n_changes, trained, tmp_path):
    """Each batch is saved, so that changes are spread over the run."""
    folder, log = tmp_path / "killed", tmp_path / "log"

    def train():
        elmo_train(resumed(folder, trained[2]), log, seconds=0.0)

    status = fork(train, kill_at=n_changes)
    assert status == signal.SIGKILL
    if folder.exists() and not (folder / "training.json").exists():
        shutil.rmtree(folder)
    assert fork(train) == 0
    assert_same_runs(folder, log, trained)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends(number, trained, tmp_path, capfd):
    folder, log = tmp_path / "stopped", tmp_path / "log"

    def train():
        arguments = resumed(folder, trained[2])
        sys.argv = ["allennlp-elmo-plugin", "elmo-train", *map(str, arguments)]
        stop = {"stop_at": 5, "stop": lambda: os.kill(os.getpid(), number)}
        elmo_train(arguments, log, **stop)

    assert fork(train) == number
    assert len(losses(log)) == 5
    word = "interrupted" if number == signal.SIGINT else "terminated"
    error = capfd.readouterr().err
    assert f"{word}; continue with: allennlp-elmo-plugin elmo-train --resume /" in error
    assert fork(train) == 0
    assert_same_runs(folder, log, trained)


@pytest.mark.parametrize(
    "of_size, given, expected",
    [
        ({"learning_rate": 0.05}, [], ("adagrad", 0.05)),
        ({"learning_rate": 0.05}, ["--optimizer", "adagrad"], ("adagrad", 0.05)),
        ({"learning_rate": 0.05}, ["--optimizer", "adam"], ("adam", 0.002)),
        ({"optimizer": "adam"}, ["--learning-rate", "0.05"], ("adam", 0.05)),
        ({"optimizer": "adam"}, ["--optimizer", "adagrad"], ("adagrad", 0.2)),
        ({}, [], ("adagrad", 0.2)),
    ],
)
def test_the_rate_of_a_size_is_that_of_its_optimizer(of_size, given, expected, data, tmp_path):
    arguments = write_run(tmp_path, data)
    size = json.loads((tmp_path / "size.json").read_text(encoding="utf-8"))
    of_adam = {"warmup_steps": 0} if "optimizer" in of_size else {}
    size["training"].update(of_size, **of_adam, num_epochs=1)
    (tmp_path / "size.json").write_text(json.dumps(size), encoding="utf-8")
    elmo_train([*arguments, "-o", tmp_path / "run", *given])
    name, rate = expected
    content = torch.load(tmp_path / "run" / "checkpoint.pt")
    assert (tmp_path / "run" / "adagrad.hdf5").exists() == (name == "adagrad")
    if name == "adagrad":
        assert content["optimizer"]["param_groups"][0]["lr"] == rate
    else:  # It has fallen to 0 at the end.
        run = json.loads((tmp_path / "run" / "training.json").read_text(encoding="utf-8"))
        assert run["training"].get("learning_rate", 0.002) == rate


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait(processes):
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]


def test_two_processes(data, tmp_path, capfd):
    """They have one model, end together, and resume exactly after one of them was killed."""
    arguments = write_run(tmp_path, data)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert wait(start_processes(2, free_port(), whole, *arguments, "-o", whole)) == [0, 0]
    by_rank = [losses(tmp_path / f"whole.losses{rank}") for rank in range(2)]
    assert by_rank[0] != by_rank[1]  # each of its rows
    assert losses(tmp_path / "whole.losses0")

    def kill():
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)

    settings = {"stop_at": 4, "stop": kill, "seconds": 0.0}
    processes = start_processes(2, free_port(), killed, *resumed(killed, arguments), **settings)
    assert wait(processes)[1] == -signal.SIGKILL
    processes = start_processes(2, free_port(), killed, *resumed(killed, arguments))
    assert wait(processes) == [0, 0]
    for rank in range(2):
        assert losses(tmp_path / f"killed.losses{rank}") == by_rank[rank]
    assert metrics(killed) == metrics(whole)
    capfd.readouterr()
    assert fork(lambda: elmo_train([*resumed(killed, arguments)])) != 0
    assert "is of 2 processes, not 1; use as many" in capfd.readouterr().err


def test_a_run_that_has_no_model_yet_says_how_to_continue(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(elmo_train_module, "train_run", lambda *_: None)
    text, run = data / "heldout.txt", tmp_path / "run"
    new = [text, "--validation", text, "--size", "demo", "--batch-size", 2]
    main(["elmo-train", *map(str, [*new, "-o", run])])
    with pytest.raises(FileNotFoundError) as raised:
        ElmoEmbedder(run)
    command = f"allennlp-elmo-plugin elmo-train --resume --output {run}"
    assert str(raised.value).endswith(f"continue it with: {command}")
    monkeypatch.undo()
    main(shlex.split(command)[1:] + ["--num-epochs", "1", "-q"])
    assert ElmoEmbedder(run).embed_sentence(["w1"]).shape == (3, 1, 128)


def mistake(capsys, *arguments):
    """Run the command with a mistake, and return the line that it prints."""
    with pytest.raises(SystemExit) as raised:
        main(["elmo-train", *map(str, arguments)])
    assert raised.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "|" not in line]
    assert line.startswith("error: ") and "--force" not in line  # which it doesn't have
    return line


def test_mistakes(data, trained, tmp_path, capsys):
    """One line, and nothing is written."""
    whole, _, (text, *options) = trained
    new = ["-o", tmp_path / "new", text, "--validation", text]
    latin, one = tmp_path / "latin", tmp_path / "one"
    latin.write_bytes(b"caf\xe9 caf\xe9\n")
    one.write_text("one line " * 999)
    bad_size = tmp_path / "bad.json"
    size = json.loads(options[options.index("--size") + 1].read_text(encoding="utf-8"))
    for section, key in (("model", "dropuot"), ("text", "rows"), ("training", "epochs")):
        bad = {**size, section: {**size[section], key: 1}}
        bad_size.write_text(json.dumps(bad), encoding="utf-8")
        assert f"'{key}'; see " in mistake(capsys, *new, "--size", bad_size)
    whole_number, flag = "it must be a whole number", "it must be true or false"
    number = "it must be a number"
    for setting, value, message in (
        ("text.batch_size", "4", whole_number),
        ("text.shuffle_sentences", "false", flag),
        ("text.encoding_errors", "Strict", "use strict or replace"),
        ("text.batches_per_epoch", -3, "it must be at least 1"),
        ("text.max_rows", 3, "it must be at least 4"),
        ("text.device", "cpu", "multiple values for keyword argument 'device'"),
        ("text.paths", "other.txt", "has paths; give them as TEXT and --validation TEXT"),
        ("validation.num_steps", 0, "it must be at least 1"),
        ("model.num_samples", -1, "must be a whole number from 0 or"),
        ("model.variational_dropout", "false", flag),
        ("model.recurrent_dropout", None, number),
        ("training.num_epochs", "2", whole_number),
        ("training.num_epochs", 0, "it must be at least 1"),
        ("training.patience", "1", f"{whole_number} or null"),
        ("training.validate_first", 1, flag),
        ("training.warmup_steps", -1, "it must be at least 0"),
        ("training.warmup_steps", 300, "adagrad has no warm-up"),
        ("training.grad_norm", False, number),
        ("training.grad_norm", None, number),
        ("training.grad_norm", 0, "it must be above 0"),
        ("training.learning_rate", 0, "it must be above 0"),
    ):
        section, key = setting.split(".")
        bad = {**size, section: {**size[section], key: value}}
        bad_size.write_text(json.dumps(bad), encoding="utf-8")
        line = mistake(capsys, *new, "--size", bad_size)
        assert message in line and key in line and str(bad_size) in line, (setting, line)
    bad_size.write_text(json.dumps({**size, "model": 3}), encoding="utf-8")
    assert "has not just model, text" in mistake(capsys, *new, "--size", bad_size)
    bad_size.write_text("{}", encoding="utf-8")
    assert "has not just model, text" in mistake(capsys, *new, "--size", bad_size)
    for arguments, message in (
        (new[:3], "a new run needs TEXT and --validation"),
        ([*new[:4], tmp_path / "nowhere"], "nowhere does not exist"),
        ([*new, "--size", "huge"], "--size huge: there is no such file; sizes are demo, "),
        ([*new, "--vocab", tmp_path], "has no vocabulary; make it with `elmo-vocab`"),
        ([*new, "--from", whole, "--size", "demo"], "leave out --size or --from"),
        ([*new, "--size", "demo", "--num-samples", 70], "70"),
        ([*new, "--size", "demo", "--dropout", 1.5], "dropout"),
        ([*new, "--resume"], "has no run of elmo-train; leave --resume out"),
        (["-o", whole, *new[2:]], "has a run; add --resume to continue it"),
        (["-o", data, *new[2:]], "is not empty; choose another output"),
        ([*new, "--size", "demo", "--batch-size", 99], "heldout.txt is smaller than one batch"),
        ([*new, "--vocab", text], "`allennlp-elmo-plugin elmo-vocab` makes one of a text"),
        (["-o", tmp_path / "new", latin, "--validation", text], "byte 0xe9 is not UTF-8 (inv"),
        (["-o", tmp_path / "new", one, "--validation", text, "--size", "demo"], "of 16 sentences"),
    ):
        assert message in mistake(capsys, *arguments), arguments
    assert not (tmp_path / "new").exists()


def test_what_a_resumed_run_refuses(trained, tmp_path, capsys, monkeypatch):
    whole, _, arguments = trained
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    before = read_files(folder)
    for option, value, name in (
        ("--batch-size", 3, "text.batch_size is 4 in the run, not 3"),
        ("--seed", 3, "seed is 133 in the run, not 3"),
        ("--optimizer", "adam", "training.optimizer is 'adagrad' in the run, not 'adam'"),
        ("--validation", folder / "vocab.txt", "validation.paths is '"),
    ):
        assert name in mistake(capsys, "--resume", "-o", folder, option, value)
    options = dict(zip(arguments[3::2], arguments[4::2]))
    for option, path in (("--size", options["--size"]), ("--vocab", options["--vocab"])):
        file = path / "vocab.txt" if path.is_dir() else path
        content = file.read_text("utf-8")
        file.write_text(content + "\n", "utf-8")
        line = mistake(capsys, "--resume", "-o", folder, option, path)
        assert f"{option[2:]} is {str(path)!r}"[:-1] + " (SHA-256 " in line
        file.write_text(content, "utf-8")
    with locked(folder / ".lock"):
        line = mistake(capsys, "--resume", "-o", folder)
    assert "another process is using it" in line
    for words in ("w1\nnew", "new"):  # of another number, and of the same
        text = (whole / "vocab.txt").read_text(encoding="utf-8")
        (folder / "vocab.txt").write_text(text.replace("w1\n", f"{words}\n", 1))
        assert "the vocabulary changed" in mistake(capsys, "--resume", "-o", folder)
    shutil.copy(whole / "vocab.txt", folder)
    with monkeypatch.context() as patch:
        patch.setattr(text_batches, "digests", lambda files: {str(arguments[0]): "another"})
        assert "heldout.txt changed" in mistake(capsys, "--resume", "-o", folder)
    assert read_files(folder) == before
    content = bytearray(before["checkpoint.pt"])
    content[len(content) // 2] ^= 1
    (folder / "checkpoint.pt").write_bytes(content)
    line = mistake(capsys, "--resume", "-o", folder)
    assert "checkpoint.pt: damaged (" in line and "put back a copy of it, or start again" in line
    (folder / "checkpoint.pt").unlink()
    assert "checkpoint.pt is missing: put it back, or" in mistake(capsys, "--resume", "-o", folder)
    defaults = ["--seed", 133, "--learning-rate", 0.2, "--dropout", 0.3, "--precision", "float32"]
    elmo_train([*arguments, "--resume", "-o", whole, "--optimizer", "adagrad", *defaults])
    assert "The model of epoch 2" in capsys.readouterr().out


def test_a_full_disk(trained, tmp_path, capfd):
    """At the first checkpoint, or at the model after the first epoch, nothing is half written."""
    folder, log = tmp_path / "run", tmp_path / "log"

    def train():
        limit_file_size(9_000)
        elmo_train(resumed(folder, trained[2]), log)

    assert fork(train) != 0
    error = capfd.readouterr().err
    assert "cannot write: File too large; nothing has changed there, make room and repeat" in error
    assert sorted(os.listdir(folder)) == ["training.json", "vocab.txt", "vocabulary"]
    assert fork(lambda: elmo_train(resumed(folder, trained[2]), log)) == 0
    assert_same_runs(folder, log, trained)


def test_other_commands_take_the_folder(trained, data, tmp_path, capsys):
    folder, _, arguments = trained
    best = min(metrics(folder), key=lambda epoch: epoch["validation_perplexity"])
    main(["elmo-perplexity", str(folder), str(arguments[0])])
    printed = capsys.readouterr().out
    for kind in ("", "forward_", "backward_"):
        assert f"{best[f'validation_{kind}perplexity']:,.2f}" in printed
    assert f"{best['validation_unknown_words']:.2%}" in printed
    assert printed.split()[-2:] == ["batch_size", "4"]
    other = tmp_path / "other.txt"
    other.write_text("w1 w2 w3\n" * 9)
    tables = []
    for texts in ([arguments[0], other], [arguments[0]], [other]):
        main(["elmo-perplexity", str(folder), *map(str, texts)])
        tables.append(
            [line.split()[-len(texts) :] for line in capsys.readouterr().out.splitlines()]
        )
    both, *alone = tables
    assert both[0] == [str(arguments[0]), str(other)]
    assert both == [[*first, *second] for first, second in zip(*alone, strict=True)]
    layers = ElmoEmbedder(str(folder)).embed_sentence(["w1", "w2"])
    assert layers.shape == (3, 2, 16)
    export(str(folder), tmp_path / "exported")
    for name in ("weights", "softmax"):
        exported, own = (
            read_arrays(path / f"{name}.hdf5") for path in (tmp_path / "exported", folder)
        )
        assert all((exported[key] == own[key]).all() for key in own)
    import_model(folder, tmp_path / "imported")
    assert (tmp_path / "imported" / "adagrad.hdf5").read_bytes() == (
        folder / "adagrad.hdf5"
    ).read_bytes()
    archive = tmp_path / "imported" / "model.tar.gz"
    allennlp = pytest.importorskip("allennlp.commands.evaluate")
    evaluated = allennlp.evaluate_from_archive(str(archive), str(arguments[0]))
    main(["elmo-perplexity", str(archive), str(arguments[0])])
    assert f"{evaluated['perplexity']:,.2f}" in capsys.readouterr().out
    assert read_run(str(folder)).keys() >= {"sampled training", "validation"}
