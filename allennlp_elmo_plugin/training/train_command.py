"""
What `allennlp train` of a language model tells its user: results as a table, and one line when it
is stopped or can't start.
"""

import functools
import json
import logging
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, Optional

from allennlp.commands import train
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import SigTermReceived
from allennlp.models.archival import CONFIG_NAME

from allennlp_elmo_plugin.files.model_file_names import ARCHIVE_FILE, METRICS_FILE
from allennlp_elmo_plugin.training.console import is_language_model
from allennlp_elmo_plugin.training.evaluation import metrics_table

# AllenNLP's own, which the plugin replaces under its name.
_train_model_from_file = train.train_model_from_file

_FAILED, _INTERRUPTED, _TERMINATED = 1, 130, 143
"""Exit statuses; the last two are those that a shell reports after a signal."""


@functools.wraps(_train_model_from_file)
def train_model_from_file(
    parameter_filename: Any,
    serialization_dir: Any,
    overrides: Any = "",
    recover: bool = False,
    force: bool = False,
    **settings: Any,
) -> Any:
    """
    AllenNLP's function of this name. If it is called by the command `allennlp train` and trains a
    language model, then it prints the metrics in the end. Ctrl-C and SIGTERM end the program with a
    line that names the command to go on with, and a mistake of the user, such as a variable of the
    config that isn't set, with a line that says what to do.
    """
    if sys.argv[1:2] != ["train"]:
        return _train_model_from_file(
            parameter_filename, serialization_dir, overrides, recover, force, **settings
        )
    status, message = _FAILED, ""
    is_ours = True  # until the config is read
    try:
        _check_paths(os.fspath(parameter_filename), Path(serialization_dir))
        params = _read_config(os.fspath(parameter_filename), overrides)
        is_ours = is_language_model(params.params)
        model = train.train_model(params, serialization_dir, recover, force, **settings)
        if is_ours and not settings.get("dry_run"):
            _print_results(Path(serialization_dir))
        return model
    except (KeyboardInterrupt, SigTermReceived) as error:
        if not is_ours:
            raise
        is_terminated = isinstance(error, SigTermReceived)
        status = _TERMINATED if is_terminated else _INTERRUPTED
        command = _command(parameter_filename, serialization_dir, overrides, settings)
        message = f"{'terminated' if is_terminated else 'interrupted'}; to go on: {command}"
    except (ConfigurationError, FileNotFoundError) as error:
        if not is_ours or not _is_of_this_package(error):
            raise
        message = f"error: {str(error).strip()}"
        _log_to_files(error)
    # Outside of the handlers, the error is gone, and with it the progress bars that it kept open.
    print(message, file=sys.stderr)
    sys.exit(status)


def _check_paths(config: str, folder: Path) -> None:
    """Check the two arguments of the command, whichever model they are for."""
    if os.path.isdir(config):
        raise ConfigurationError(f"The config {config} is a folder; give a file in it")
    if "://" not in config and not os.path.exists(config):
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
    best = f" (the best epoch, {metrics['best_epoch']})" if "best_epoch" in metrics else ""
    print(f"The model{best} is in {folder / ARCHIVE_FILE}", flush=True)


def _command(
    parameter_filename: Any, serialization_dir: Any, overrides: Any, settings: Dict[str, Any]
) -> str:
    """Return the command that recovers the run; if it has not begun, the one that begins it."""
    words = [os.fspath(parameter_filename), "-s", os.fspath(serialization_dir)]
    if Path(serialization_dir, CONFIG_NAME).exists():
        words.append("--recover")
    if overrides:
        words += ["-o", overrides]
    for package in settings.get("include_package") or []:
        words += ["--include-package", package]
    if settings.get("node_rank"):
        words += ["--node-rank", str(settings["node_rank"])]
    for name in ("dry_run", "file_friendly_logging"):
        if settings.get(name):
            words.append(f"--{name.replace('_', '-')}")
    return f"{_program()} train {shlex.join(words)}"


def _program() -> str:
    path = Path(sys.argv[0])
    return f"python -m {path.parent.name}" if path.name == "__main__.py" else path.name


def _is_of_this_package(error: BaseException) -> bool:
    """Return whether our code raised an error, whose message then says all that its user needs."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name: Optional[str] = trace and trace.tb_frame.f_globals.get("__name__")
    return (name or "").split(".")[0] == __name__.split(".")[0]


def _log_to_files(error: BaseException) -> None:
    """Log an error with its traceback as AllenNLP does, but not on the console."""
    root = logging.getLogger()
    information: Any = (type(error), error, error.__traceback__)
    record = root.makeRecord(
        root.name, logging.CRITICAL, __file__, 0, "Uncaught exception", (), information
    )
    for handler in root.handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(record)
