"""The subcommand `elmo-train` trains a language model, in torch alone."""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from allennlp_elmo_plugin.commands.command import (
    ELMO_HELP,
    TEXT_HELP,
    Command,
    gpu_number,
    positive,
)
from allennlp_elmo_plugin.commands.elmo_configs import CONFIGS
from allennlp_elmo_plugin.commands.elmo_vocab import write_vocabulary
from allennlp_elmo_plugin.files.atomic import output_folder, write_text
from allennlp_elmo_plugin.files.json_file import read_json_object, to_json
from allennlp_elmo_plugin.files.locks import locked
from allennlp_elmo_plugin.pretrained import file_names as names
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained
from allennlp_elmo_plugin.text import vocabulary
from allennlp_elmo_plugin.text.corpus import digests, find_files, read_text
from allennlp_elmo_plugin.training.optimizer import OPTIMIZERS
from allennlp_elmo_plugin.training.processes import joined_processes, rank
from allennlp_elmo_plugin.training.settings import KINDS, make_trainer, train_run
from allennlp_elmo_plugin.training.text_batches import TextBatches

_SIZES_FILE = CONFIGS / "pretrain" / "sizes.json"
# The most words for which a size is the default. Small has none.
_MOST_WORDS = {"demo": 150_000, "tiny_corpus": 1_500_000}
_CHANGEABLE = {
    f"training.{name}"
    for name in ("num_epochs", "patience", "save_every_num_batches", "tensorboard")
}


class ElmoTrain(Command):
    """
    Train a language model, or train one further.

      %(prog)s train.txt --validation heldout.txt --output my_elmo

    makes a vocabulary, trains, and writes the model to my_elmo after every epoch that is the best
    so far: `Elmo`, `ElmoEmbedder` and the other commands read it. --from MODEL trains a model
    further on another text. Ctrl-C saves and ends; --resume --output my_elmo continues exactly.
    With several processes, here on two GPUs:

      torchrun --nproc-per-node 2 -m allennlp_elmo_plugin elmo-train ...
    """

    name = "elmo-train"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("text", nargs="*", metavar="TEXT", help=TEXT_HELP)
        add("-o", "--output", required=True, type=Path, metavar="DIR", help="new folder of the run")
        add("--validation", metavar="TEXT", help="text that is held out from training")
        sizes = ", ".join(read_json_object(_SIZES_FILE))
        help = f"model and training: {sizes}, or a JSON file such as {_SIZES_FILE.name}'s entries"
        add("--size", help=f"{help}; default: by the number of words, or that of --from")
        add("--from", metavar="MODEL", help=f"train this model further: {ELMO_HELP}")
        help = "of `elmo-vocab`; default: that of --from, or the words that TEXT has twice or more"
        add("--vocab", metavar="FOLDER", help=help)
        add("--resume", action="store_true", help="continue the run in DIR")
        help = "-1 for the CPU; default: a GPU, if any"
        add("--cuda-device", type=gpu_number, metavar="N", help=help)
        settings = parser.add_argument_group("settings, by default those of the size")

        def setting(name: str, help: str, **others: Any) -> None:
            option = name.partition(".")[2].replace("_", "-")
            settings.add_argument(f"--{option}", dest=name, help=help, **others)

        number: dict[str, Any] = {"type": positive, "metavar": "N"}
        setting("training.num_epochs", "passes over the text", **number)
        setting("training.patience", "end after N epochs without a better one", **number)
        setting("text.batch_size", "rows of a batch, for each process", **number)
        samples = {"type": lambda n: n if n == "auto" else int(n), "metavar": "N"}
        setting("model.num_samples", "negative samples; 0 for the full softmax; or auto", **samples)
        rate: dict[str, Any] = {"type": float, "metavar": "X"}
        setting("model.dropout", "of the inputs and outputs of LSTM layers", **rate)
        setting("model.precision", "of products", choices=["float32", "bfloat16"])
        rising = " and ".join(name for name, kind in OPTIMIZERS.items() if kind.warms_up)
        setting("training.optimizer", f"the rate of {rising} rises, then falls", choices=OPTIMIZERS)
        rates = ", ".join(f"{kind.learning_rate} for {name}" for name, kind in OPTIMIZERS.items())
        setting("training.learning_rate", f"default: {rates}", **rate)
        steps = "batches for each update, by the mean of their gradients"
        setting("training.num_gradient_accumulation_steps", steps, **number)
        saves = "save a checkpoint every N batches, besides that of every ten minutes"
        setting("training.save_every_num_batches", saves, **number)
        log = "write curves to DIR/log for TensorBoard (pip install tensorboard)"
        setting("training.tensorboard", log, action="store_true", default=None)
        settings.add_argument("--seed", type=int, metavar="N", help="of weights and dropout")

    def run(self, args: argparse.Namespace) -> None:
        if os.environ.get("RANK", "0") == "0":
            (_resume if args.resume else _start)(args)
        else:  # It waits in `joined_processes`, and ends there if the first process does.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with joined_processes(args.cuda_device) as device:
            with nullcontext() if rank() else locked(args.output / ".lock"):
                try:
                    train_run(args.output, device)
                except (KeyboardInterrupt, ValueError):
                    if rank() == 0:
                        raise
                    sys.exit(2)  # The first process says it.

    def resume(self, args: argparse.Namespace) -> list[str] | None:
        is_started = (args.output / names.TRAINING_FILE).exists()
        return ["--resume"] * (not args.resume) if is_started else None


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """
    Return the settings that were given, such as `text.batch_size`, with absolute paths, and with
    checksums of a size and a vocabulary.
    """
    given = {name: value for name, value in vars(args).items() if "." in name or name == "seed"}
    given["text.paths"] = [os.path.abspath(path) for path in args.text] or None
    given["validation.paths"] = args.validation and os.path.abspath(args.validation)
    for name, is_path in (("size", os.path.isfile), ("from", os.path.exists), ("vocab", bool)):
        value = getattr(args, name)
        given[name] = os.path.abspath(value) if value and is_path(value) else value
    for name, file in (("size", args.size), ("vocab", args.vocab and _vocabulary_file(args.vocab))):
        if file and os.path.isfile(file):
            given[name] += f" (SHA-256 {digests([Path(file)])[str(file)]})"
    return {name: value for name, value in given.items() if value is not None}


def _start(args: argparse.Namespace) -> None:
    """Write the settings and the vocabulary of a new run, after all mistakes are found."""
    if (args.output / names.TRAINING_FILE).exists():
        raise ValueError(f"{args.output} has a run; add --resume to continue it")
    if not args.text or not args.validation:
        raise ValueError("a new run needs TEXT and --validation TEXT")
    given, words = {"seed": 133, **_given(args)}, None  # by default AllenNLP's
    files = find_files(given["text.paths"])
    find_files(given["validation.paths"])
    if "from" in given:
        if "size" in given:
            raise ValueError("a model has its size: leave out --size or --from")
        source = read_pretrained(given["from"])
        words = source.words
        run: dict[str, Any] = {
            "model": {"options": source.options.to_dict()},
            "text": {"batch_size": 16, "shuffle_sentences": True},
            "validation": {},
            "training": {"patience": 2, "validate_first": True},
        }
    else:
        if "size" not in given:
            given["size"], n_words = _choose_size(files)
            print(f"{n_words} words: --size {given['size']}")
        run = _read_size(args.size or given["size"])
    if "vocab" in given:
        words = vocabulary.read_vocabulary_file(_vocabulary_file(args.vocab))
    optimizer = run["training"].get("optimizer", "adagrad")
    if given.get("training.optimizer", optimizer) != optimizer:
        for key in ("learning_rate", "warmup_steps"):  # They are for the other one.
            run["training"].pop(key, None)
    for name, value in given.items():
        part, key = _place(run, name)
        part[key] = value
    with _errors_of_size(args.size):
        text = TextBatches(**run["text"])
    outputs = names.TRAINING_FILE, names.VOCABULARY_FILE, vocabulary.VOCABULARY_FOLDER
    with output_folder(args.output, outputs) as new:
        if words is None:
            made, summary = write_vocabulary(
                text.files, new, min_count=2, encoding_errors=text.encoding_errors
            )
            words = [word for word, _ in made]
            print(summary)
        else:
            vocabulary.write_vocabulary_file(new / names.VOCABULARY_FILE, words)
            vocabulary.write_vocabulary_folder(new / vocabulary.VOCABULARY_FOLDER, words)
        # The first optimizer imports it, which fails for torch 2.6 on this device.
        importlib.import_module("torch._dynamo")
        with _errors_of_size(args.size), torch.device("meta"):  # takes no memory
            trainer = make_trainer(run, words, new, "meta")
        if trainer.text.count() == 0:
            raise ValueError(
                f"{text.name} is smaller than one batch, of {text.batch_size} sentences side by "
                "side; give more text, one sentence a line, or lower --batch-size"
            )
        options = trainer.model.options
        run["model"]["options"] = options.to_dict()
        defaults = {"model.dropout": options.dropout, "model.num_samples": options.n_samples}
        defaults["training.learning_rate"] = trainer.kind.learning_rate
        for name in filter(lambda name: "." in name, vars(args)):
            section, _, key = name.partition(".")
            default = defaults.get(name, signature(KINDS[section]).parameters[key].default)
            if run[section].get(key) is None:
                run[section][key] = default
        write_text(new / names.TRAINING_FILE, to_json(run) + "\n")


def _choose_size(files: list[Path]) -> tuple[str, str]:
    """Return the size for a text, and how many words it has, as far as this was counted."""
    n_words = 0
    for text in read_text(files, "replace"):
        n_words += len(text.split())
        if n_words > max(_MOST_WORDS.values()):
            return "small", f"more than {n_words:,}"
    return next(size for size, most in _MOST_WORDS.items() if n_words <= most), f"{n_words:,}"


def _read_size(name: str) -> dict[str, Any]:
    """Return a size by its name, or from a JSON file."""
    sizes = read_json_object(_SIZES_FILE)
    if not os.path.isfile(name) and name not in sizes:
        raise ValueError(f"--size {name}: there is no such file; sizes are {', '.join(sizes)}")
    size: dict[str, Any] = read_json_object(name) if os.path.isfile(name) else sizes[name]
    is_section = [isinstance(section, dict) for section in size.values()]
    if sorted(size) != sorted(sizes["small"]) or not all(is_section):
        raise ValueError(f"{name}: has not just {', '.join(sizes['small'])}; see {_SIZES_FILE}")
    if "paths" in {**size["text"], **size["validation"]}:
        raise ValueError(f"{name}: has paths; give them as TEXT and --validation TEXT")
    return size


@contextmanager
def _errors_of_size(size: str | None) -> Iterator[None]:
    """Name the file of a size in errors of settings, which are arguments."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if size is None or not os.path.isfile(size):
            raise
        raise ValueError(f"{size}: {error}; see {_SIZES_FILE}") from error


def _vocabulary_file(path: str) -> Path:
    """Return a vocabulary, which may be in a folder."""
    file = Path(path) if os.path.isfile(path) else names.find_vocabulary_file(Path(path))
    if file is None:
        raise ValueError(f"{path}: has no vocabulary; make it with `elmo-vocab`")
    return file


def _resume(args: argparse.Namespace) -> None:
    """Check that what is given is as in the run; change what may be changed."""
    path = args.output / names.TRAINING_FILE
    if not path.exists():
        raise ValueError(f"{args.output} has no run of elmo-train; leave --resume out")
    checkpoint = args.output / names.CHECKPOINT_FILE
    if (args.output / names.WEIGHT_FILE).exists() and not checkpoint.exists():
        raise ValueError(
            f"{checkpoint} is missing: put it back, or train further with --from {args.output}"
        )
    run, given = read_json_object(path), _given(args)
    before = to_json(run)
    for name, value in given.items():
        part, key = _place(run, name)
        if part.get(key) != value and name not in _CHANGEABLE:
            raise ValueError(
                f"{args.output}: {name} is {part.get(key)!r} in the run, not {value!r}; a resumed "
                "run can only change --num-epochs, --patience, --save-every-num-batches, "
                "--tensorboard and --cuda-device"
            )
        part[key] = value
    if to_json(run) != before:
        with locked(args.output / ".lock"):
            write_text(path, to_json(run) + "\n")


def _place(run: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """Return the part of a run that has a setting, and its key there."""
    section, _, key = name.rpartition(".")
    return run[section] if section else run, key
