"""
What `allennlp train` of a language model tells its user: results as a table, and one line when it
is stopped or can't start.
"""

import functools
import inspect
import json
import logging
import math
import os
import re
import shlex
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Dict, Optional

from allennlp.commands import train
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.errors import describe, end_with, signal_of, terminable
from allennlp_elmo_plugin.files.model_file_names import ARCHIVE_FILE, METRICS_FILE
from allennlp_elmo_plugin.training.evaluation import metrics_table
from allennlp_elmo_plugin.training.run_folder import (
    is_language_model,
    is_trained,
    version_of_config,
)

logger = logging.getLogger(__name__)

# AllenNLP's own, which the plugin replaces under its name.
_train_model_from_file = train.train_model_from_file

_PROGRAMS = ("allennlp", "python -m allennlp", "python -m allennlp_elmo_plugin")
"""Whose `train` is the command; that of a user's own program gets exceptions."""

_MODULES_OF_CONFIGS = {"allennlp.common.params", "allennlp.common.from_params"}
_PACKAGES = ("allennlp", "torch", "allennlp_elmo_plugin")
"""Whose errors about a value of a config say what is wrong."""


@functools.wraps(_train_model_from_file)
def train_model_from_file(*args: Any, **kwargs: Any) -> Any:
    """
    AllenNLP's function of this name. If it is called by the command `allennlp train` and trains a
    language model, then it prints the metrics in the end. Ctrl-C and SIGTERM end the program, after
    a line that names the command to go on with; a mistake of the user, such as a variable of the
    config that isn't set, ends it with a line that says what to do.
    """
    if not is_program("train"):
        return _train_model_from_file(*args, **kwargs)
    given = inspect.signature(_train_model_from_file).bind(*args, **kwargs)
    given.apply_defaults()
    arguments = given.arguments
    folder = Path(arguments["serialization_dir"])
    version = version_of_config(folder)
    number = 0
    is_ours = True  # until the config is read
    try:
        settings = dict(arguments)
        config = os.fspath(settings.pop("parameter_filename"))
        _check_paths(config, folder)
        with terminable():
            params = _read_config(config, settings.pop("overrides"))
        is_ours = is_language_model(params.params)
        with terminable() if is_ours else nullcontext():
            model = train.train_model(params, **settings)
        if is_ours and not settings["dry_run"]:
            _print_results(folder)
        return model
    except KeyboardInterrupt as error:
        if not is_ours:
            raise
        number, word = signal_of(error)
        begun = version_of_config(folder) != version
        is_saved = arguments["recover"] or (begun and is_trained(folder))
        done = "; continue with" if is_saved else " before anything was saved; start again with"
        message = f"{word}{done}: {_command(arguments, is_saved)}"
    except (
        ChildProcessError,
        ConfigurationError,
        FileNotFoundError,
        TypeError,
        ValueError,
    ) as error:
        if not is_ours or not _is_mistake(error):
            raise
        message = f"error: {describe(error)}"
    # Outside of the handlers, the error is gone, and with it the progress bars that it kept open.
    end_with(message, number=number)


def is_program(command: str) -> bool:
    """Return whether this program is AllenNLP's, with this command."""
    return sys.argv[1:2] == [command] and _program() in _PROGRAMS


def is_of_this_package(error: BaseException) -> bool:
    """Return whether our code raised an error, whose message then says all that its user needs."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name: Optional[str] = trace and trace.tb_frame.f_globals.get("__name__")
    return (name or "").split(".")[0] == __name__.split(".")[0]


def _is_mistake(error: Exception) -> bool:
    """
    Return whether a setting is wrong, or a file is missing that the user has named; or the process
    of the data loader was killed.
    """
    is_missing = isinstance(error, FileNotFoundError)
    if isinstance(error, ChildProcessError):
        return is_of_this_package(error)
    if is_of_this_package(error) and (is_missing or isinstance(error, ConfigurationError)):
        return True
    modules = [
        frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    # AllenNLP was reading the config, or making the model and the trainer with its settings: any
    # constructor may refuse a value. One of a user's own code may have a fault, though.
    is_of_config = not _MODULES_OF_CONFIGS.isdisjoint(modules)
    return is_of_config and not is_missing and modules[-1].split(".")[0] in _PACKAGES


def _check_paths(config: str, folder: Path) -> None:
    """Check the two arguments of the command, whichever model they are for."""
    path_of_config = os.path.expanduser(config)  # as AllenNLP does
    if os.path.isdir(path_of_config):
        raise ConfigurationError(f"The config {config} is a folder; give a file in it")
    if "://" not in config and not os.path.exists(path_of_config):
        raise ConfigurationError(
            f"There is no config {config} (looked from {os.getcwd()}); give the path of a .jsonnet "
            "or .json file. `allennlp elmo-configs FOLDER` copies those of this package"
        )
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise ConfigurationError(
                f"The run can't be saved in {folder}: {path} is a file; give a new folder (-s)"
            )


def _read_config(config: str, overrides: Any) -> Params:
    try:
        return Params.from_file(config, overrides)
    except RuntimeError as error:  # jsonnet's
        # The overrides have no file name.
        is_override = re.match(r"STATIC ERROR: \d", str(error))
        place = f"the overrides, -o {shlex.quote(overrides)}," if is_override else config
        message = " ".join(" ".join(str(error).splitlines()[:2]).split())  # and not all the callers
        raise ConfigurationError(f"{place} can't be read as a config: {message}") from error


def _print_results(folder: Path) -> None:
    path = folder / METRICS_FILE
    if not path.exists():  # on another machine than the first
        return
    metrics = json.loads(path.read_text(encoding="utf-8"))  # with NaN, as AllenNLP writes it
    columns: Dict[str, Dict[str, Any]] = {}
    for heading, prefix in (
        ("training", "training_"),
        ("validation", "best_validation_"),
        ("test", "test_"),
    ):
        for name in ("perplexity", "forward_perplexity", "backward_perplexity", "loss"):
            if prefix + name in metrics:
                columns.setdefault(heading, {})[name] = metrics[prefix + name]
    print(metrics_table(columns))
    values = [value for column in columns.values() for value in column.values()]
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        logger.warning(
            "The training has diverged: its loss is too large for a perplexity. A lower learning "
            "rate (trainer.optimizer.lr) may help"
        )
    epoch = metrics.get("best_epoch")  # from 0; None if no epoch was validated
    best = "" if epoch is None else f" (the best epoch, {epoch})"
    print(f"The model{best} is in {folder / ARCHIVE_FILE}", flush=True)


def _command(arguments: Dict[str, Any], recover: bool) -> str:
    """Return the command of this call, to recover its run or to start it."""
    names = (arguments["parameter_filename"], "-s", arguments["serialization_dir"])
    words = [*map(os.fspath, names), *["--recover"] * recover]
    if arguments["overrides"]:
        words += ["-o", arguments["overrides"]]
    for package in arguments["include_package"] or []:
        words += ["--include-package", package]
    if arguments["node_rank"]:
        words += ["--node-rank", str(arguments["node_rank"])]
    for name in ("dry_run", "file_friendly_logging"):
        if arguments[name]:
            words.append(f"--{name.replace('_', '-')}")
    return f"{_program()} train {shlex.join(words)}"


def _program() -> str:
    path = Path(sys.argv[0])
    return f"python -m {path.parent.name}" if path.name == "__main__.py" else path.name
