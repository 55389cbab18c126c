"""Each option of each command has an effect, or is refused; see `tests/support/settings.py`."""

import argparse
import functools
import io
import json
import os
import re
import shutil
import tarfile
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.__main__ import main
from allennlp_elmo_plugin.commands import COMMANDS
from allennlp_elmo_plugin.commands.command import Parser
from allennlp_elmo_plugin.files.json_file import to_json
from tests.settings_test import OPTIONS, WORDS, inputs, nested, of_trainer  # noqa: F401
from tests.support.settings import Kind, Settings, ShownBy, beside, instead, refused

_TIMES = re.compile(r"[\d,]+ words/s|in \d:\d\d:\d\d|[0-9a-f]{8}-[0-9a-f-]{27}")


@pytest.fixture(scope="module", autouse=True)
def more_inputs(inputs):  # noqa: F811
    of_trainer(folder="run", num_epochs=1)
    of_trainer(folder="longer", num_epochs=1, learning_rate=0.1)
    Path("longer/metrics_epoch_1.json").write_text('{"validation_perplexity": 5.0}')
    Path("vocabulary.txt").write_text("\n".join([*WORDS[:3], *WORDS[:2:-1]]))
    ElmoEmbedder("other").embed_file("text", "layers.h5")
    size = {"text": {"batch_size": 3, "num_steps": 4}, "validation": {}}
    size["model"] = {"options": nested(OPTIONS), "num_samples": 0}
    for epochs in (1, 2):
        size["training"] = {"num_epochs": epochs}
        Path(f"size{epochs}.json").write_text(to_json(size))
    lines = [f"word{i % 5} T{i % 2} word{(i + 1) % 3} T{i % 3}" for i in range(12)]
    Path("labels").write_text("\n".join([*lines, ""] * 3))
    Path("labels2").write_text("\n".join(lines))
    text = Path("text").read_text().splitlines()
    Path("senses").write_text("\n".join(f"sense{i % 2}\t{line}" for i, line in enumerate(text)))


def content(path):
    """What a command has written, without times."""
    if path.is_dir():
        return {each.name: content(each) for each in sorted(path.iterdir())}
    if path.name in ("README.md", "training.json", "checkpoint.pt"):
        return path.name
    if zipfile.is_zipfile(path) and path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    if path.suffix == ".gz":
        with tarfile.open(path) as archive:
            members = filter(tarfile.TarInfo.isfile, archive)
            return {each.name: archive.extractfile(each).read() for each in members}
    if path.name.startswith("metrics"):
        return {k: v for k, v in json.loads(path.read_bytes()).items() if "seconds" not in k}
    return _TIMES.sub("", path.read_bytes().decode("latin1"))


def of_command(command, base, **options):
    """What a command prints and writes; `options` are lists of arguments."""
    before, shown, printed = set(os.listdir()), io.StringIO(), io.StringIO()
    arguments = [*command.split(), *chain(*{**base, **options}.values())]
    try:
        with redirect_stderr(shown), redirect_stdout(printed):
            main(arguments)
    except SystemExit:
        raise ValueError(shown.getvalue()) from None
    finally:
        written = [Path(name) for name in sorted(set(os.listdir()) - before)]
        contents = {path.name: content(path) for path in written}
        for path in written:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return _TIMES.sub("", printed.getvalue()), contents


def options_of(command, base):
    """The options of a command with their defaults as arguments, `None` without those."""
    parser = Parser(prog="")
    subparsers = parser.add_subparsers()
    for each in COMMANDS:
        each.add_subparser(subparsers)
    for name in command.split():
        (choices,) = (
            a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)
        )
        parser = choices[name]
    defaults = {}
    for action in parser._actions[1:]:
        is_given = action.nargs == 0 or action.dest in base
        has_default = not is_given and action.default not in (None, [], argparse.SUPPRESS)
        explicit = [action.option_strings[-1], str(action.default)] if has_default else None
        defaults[action.dest] = explicit
    return defaults


TESTS = "tests/commands/"
COMMON = {
    "packages": refused(["--include-package", "no_such"], "No module named 'no_such'"),
    "quiet": ShownBy(f"{TESTS}command_test.py::test_a_mistake_is_one_line"),
    "debug": ShownBy(f"{TESTS}command_test.py::test_only_what_may_be_a_bug_has_a_traceback"),
}
GPU = {"cuda_device": refused(["--cuda-device", "99"], "torch finds")}
WEIGHTS = ["--weight-file", "other/weights.hdf5"]
MODEL = {
    "options_file": ["--options-file", "other"],
    "weight_file": beside(WEIGHTS, options_file=["--options-file", "elmo/options.json"]),
    **GPU,
}
WORD = {"word": ["word2"], "files": ["heldout"], "max_occurrences": ["--max-occurrences", "3"]}
SMALL = {"text.batch_size": ["--batch-size", "2"], "training.num_epochs": ["--num-epochs", "1"]}
TENSORBOARD: Any = ["--tensorboard"]
if not find_spec("tensorboard"):
    TENSORBOARD = refused(TENSORBOARD, "tensorboard")
MAP = ShownBy(f"{TESTS}elmo_plot_test.py::test_map")
CORPUS = "tests/embedding/corpus_embedder_test.py::test_"

# The arguments without which a command does nothing, and a line for each option
COMMAND_LINES = {
    "elmo": (
        {
            "input_file": ["text"],
            "output_file": ["o.hdf5"],
            "output_format": ["--all"],
            "options_file": ["--options-file", "elmo"],
        },
        {
            "input_file": ["heldout"],
            "output_file": ["p.hdf5"],
            "output_format": ["--top"],
            "pooling": ["--pool", "mean"],
            "vocab_path": refused(["--vocab-path", "none"], "none"),
            **MODEL,
            "batch_size": ["--batch-size", "2"],
            "batch_tokens": ["--batch-tokens", "9"],
            "precision": ["--precision", "bfloat16"],
            "initial_state": ["--initial-state", "zero"],
            "forget_sentences": ["--forget-sentences"],
            "use_sentence_keys": beside(["--use-sentence-keys"], input_file=["heldout"]),
            "include_sentence_indices": ["--include-sentence-indices"],
            "dtype": ["--dtype", "float16"],
            "compression": ["--compression", "gzip"],
            "force": ShownBy(f"{CORPUS}what_is_complete_stays"),
            "resume": ShownBy(f"{TESTS}elmo_test.py::test_ctrl_c_and_resume"),
            "num_shards": ShownBy(f"{TESTS}elmo_test.py::test_shards_share_an_output"),
            "shard_index": ShownBy(f"{TESTS}elmo_test.py::test_shards_share_an_output"),
            "ray_workers": ShownBy(f"{TESTS}elmo_test.py::test_ray_gets_the_work"),
            "gpus_per_worker": refused(["--gpus-per-worker", "1"], "needs --ray-workers"),
            "file_friendly_logging": ShownBy(f"{TESTS}elmo_test.py::test_a_pipe_and_a_log_file"),
        },
    ),
    "elmo-configs": ({"folder": ["a"]}, {"folder": ["b"]}),
    "elmo-export": (
        {"model": ["run"], "output": ["a"]},
        {
            "model": ["elmo"],
            "output": ["b"],
            "zip": beside(["--zip"], output=["a.zip"]),
            "precision": ["--precision", "float16"],
            "initial_state": refused(["--initial-state", "zero"], "is only for an ONNX file"),
            "force": ShownBy(
                f"{TESTS}elmo_export_test.py::test_an_earlier_export_is_replaced_but_not_its_card"
            ),
        },
    ),
    "elmo-import": (
        {"source": ["run"], "output": ["a"]},
        {
            "source": ["longer"],
            "output": ["b"],
            "vocab_file": ["--vocab-file", "vocabulary.txt"],
            "force": ShownBy(f"{TESTS}elmo_import_test.py::test_a_full_disk_changes_nothing"),
        },
    ),
    "elmo-nearest": (
        {"word": ["word1"], "files": ["text"]},
        {
            "queries": ["--query", "word1 word2"],
            "number": ["--number", "1"],
            "layers": ["--layers", "layers.h5"],
            **WORD,
            **MODEL,
        },
    ),
    "elmo-perplexity": (
        {"model": ["run"], "text": ["text"]},
        {
            "model": ["longer"],
            "text": ["heldout"],
            "batch_size": ["--batch-size", "2"],
            "scores": ["--scores", "scores.tsv"],
            "words": beside(["--words"], scores=["--scores", "scores.tsv"]),
            **GPU,
        },
    ),
    "elmo-plot curves": (
        {"runs": ["run"], "output": ["-o", "a.svg"]},
        {"runs": ["longer"], "output": ["-o", "b.svg"]},
    ),
    "elmo-plot map": (
        {
            "word": ["word1"],
            "files": ["text"],
            "output": ["-o", "a.svg"],
            "groups": ["--groups", "2"],
        },
        {
            "output": ["-o", "b.svg"],
            "method": ["--method", "tsne"],
            "groups": ["--groups", "3"],
            "labels": beside(["--labels"], files=["senses"], groups=[]),
            **WORD,
            **dict.fromkeys(("options_file", "weight_file", "max_occurrences"), MAP),
            **GPU,
        },
    ),
    "elmo-plot surprise": (
        {"model": ["run"], "files": ["text"], "output": ["-o", "a.html"]},
        {"model": ["longer"], "files": ["heldout"], "output": ["-o", "b.html"], **GPU},
    ),
    "elmo-probe": (
        {
            "elmo": ["--elmo", "elmo"],
            "task": ["--task", "pos"],
            "train": ["--train", "labels"],
            "test": ["--test", "labels"],
            "output": ["--output", "a"],
        },
        {
            "elmo": ["--elmo", "other"],
            "task": beside(["--task", "wsd"], columns=["--columns", "1,1,2"]),
            "train": ["--train", "labels2"],
            "test": ["--test", "labels2"],
            "output": ["--output", "b"],
            "columns": ["--columns", "3,4"],
            "max_examples": ["--max-examples", "5"],
            **GPU,
            "seed": beside(["--seed", "1"], max_examples=["--max-examples", "5"]),
            "force": ShownBy(f"{TESTS}elmo_probe_test.py::test_command"),
        },
    ),
    "elmo-train": (
        {
            "text": ["text"],
            "validation": ["--validation", "heldout"],
            "output": ["-o", "a"],
            "size": ["--size", "size1.json"],
        },
        {
            "text": ["heldout"],
            "output": ["-o", "b"],
            "validation": ["--validation", "text"],
            "size": ["--size", "size2.json"],
            "from": instead(["--from", "run"], size=[], **SMALL),
            "vocab": ["--vocab", "vocabulary.txt"],
            "resume": refused(["--resume"], "has no run of elmo-train"),
            **GPU,
            "training.num_epochs": ["--num-epochs", "2"],
            "training.patience": refused(["--patience", "0"], "0 is less than 1"),
            "text.batch_size": ["--batch-size", "2"],
            "model.num_samples": ["--num-samples", "5"],
            "model.dropout": ["--dropout", "0.5"],
            "model.precision": ["--precision", "bfloat16"],
            "training.optimizer": ["--optimizer", "adam"],
            "training.learning_rate": ["--learning-rate", "0.01"],
            "training.num_gradient_accumulation_steps": ["--num-gradient-accumulation-steps", "2"],
            "training.save_every_num_batches": refused(
                ["--save-every-num-batches", "0"], "0 is less than 1"
            ),
            "training.tensorboard": TENSORBOARD,
            "seed": ["--seed", "5"],
        },
    ),
    "elmo-vocab": (
        {"files": ["text"], "output": ["-o", "a"]},
        {
            "files": ["heldout"],
            "output": ["-o", "b"],
            "min_count": ["--min-count", "1"],
            "max_size": ["--max-size", "9"],
            "encoding_errors": instead(["--encoding-errors", "replace"], files=["latin"]),
            "force": ShownBy(f"{TESTS}elmo_vocab_test.py::test_command"),
        },
    ),
}
KINDS = {
    command: Kind(
        functools.partial(options_of, command, base),
        functools.partial(of_command, command, base),
        {**lines, **COMMON},
    )
    for command, (base, lines) in COMMAND_LINES.items()
}
NEEDED = {"plot": ("matplotlib", "plotly", "sklearn"), "probe": ("sklearn",)}
SETTINGS = Settings(KINDS)


@pytest.fixture(autouse=True)
def skip_without_packages(kind):
    for package in NEEDED.get(kind.split()[0].removeprefix("elmo-"), ()):
        if not find_spec(package):
            pytest.skip(f"{package} isn't installed")


@pytest.mark.parametrize("kind", KINDS)
def test_each_option_has_a_line_and_an_explicit_default_no_effect(kind):
    SETTINGS.check_names(kind)


@pytest.mark.parametrize("kind, name", SETTINGS.lines)
def test_an_option_has_an_effect_or_is_refused(kind, name):
    SETTINGS.check_line(kind, name)
