"""What `allennlp train` prints at the end: a table of metrics, or one line if it was stopped."""

import functools
import json
import logging
import sys
import traceback
from pathlib import Path
from typing import Any

from allennlp.commands import train
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.commands.elmo_configs import CONFIGS
from allennlp_elmo_plugin.exits import describe, joined, run_or_end
from allennlp_elmo_plugin.files.atomic import NO_ROOM
from allennlp_elmo_plugin.plugin.training.run_folder import is_language_model, is_trained
from allennlp_elmo_plugin.pretrained.file_names import ARCHIVE_FILE, METRICS_FILE
from allennlp_elmo_plugin.training.evaluation import metrics_table

# AllenNLP's own, which the plugin replaces under its name. (The program `allennlp` looks up
# `train_model_from_args` before it imports plugins, so replacing that has no effect.)
_train_model_from_file = train.train_model_from_file

_PROGRAMS = ("allennlp", "allennlp-elmo-plugin", "__main__.py")
_MODULES_OF_CONFIGS = {"allennlp.common.params", "allennlp.common.from_params"}
# The packages whose errors about a value in a config say what is wrong
_PACKAGES = ("allennlp", "allennlp_elmo_plugin", "cached_path", "torch")
_ROWS = ("perplexity", "forward_perplexity", "backward_perplexity", "loss", "unknown_words")


@functools.wraps(_train_model_from_file)
def train_model_from_file(
    parameter_filename: Any, serialization_dir: Any, overrides: Any = "", *args: Any, **kwargs: Any
) -> Any:
    """
    AllenNLP's function of this name. When Ctrl-C or SIGTERM ends `allennlp train`, it prints the
    command that continues. For a language model it also prints the metrics at the end, and a single
    line for a user's mistake.
    """
    program = Path(sys.argv[0]).name
    if sys.argv[1:2] != ["train"] or program not in _PROGRAMS:
        # A user's own program gets the exceptions.
        return _train_model_from_file(
            parameter_filename, serialization_dir, overrides, *args, **kwargs
        )
    folder = Path(serialization_dir)
    is_ours = True  # as long as the config can't be read
    logging.raiseExceptions = False  # On a full disk, each line of the log has a traceback.

    def work() -> Any:
        nonlocal is_ours
        try:
            params = Params.from_file(parameter_filename, overrides)
        except FileNotFoundError as error:
            if not CONFIGS.joinpath(*Path(parameter_filename).parts[-2:]).exists():
                raise
            hint = "`allennlp elmo-configs training_config` copies this package's configs"
            raise ConfigurationError(f"{error}; {hint}") from error
        is_ours = is_language_model(params)
        model = train.train_model(params, serialization_dir, *args, **kwargs)
        if is_ours and not kwargs.get("dry_run"):
            _print_results(folder)
        return model

    return run_or_end(
        work,
        lambda error: describe(error) if is_ours and _is_mistake(error) else None,
        lambda: _how_to_continue(folder) if is_ours or is_trained(folder) else "",
        status=1,
    )


def _is_mistake(error: Exception) -> bool:
    """Return whether the user or the disk caused an error, so that its message is enough."""
    modules = [
        frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    package = modules[-1].split(".")[0]
    is_ours = package == __name__.split(".")[0]
    is_of_disk = isinstance(error, OSError) and (is_ours or error.errno in NO_ROOM)
    if isinstance(error, ConfigurationError) or is_of_disk:
        return True
    # Any constructor that AllenNLP calls with the values in a config may refuse one, except that an
    # error in a user's own code may be a fault of that code.
    return package in _PACKAGES and not _MODULES_OF_CONFIGS.isdisjoint(modules)


def _how_to_continue(folder: Path) -> str:
    program = Path(sys.argv[0])
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else program.name
    is_saved = is_trained(folder)
    words = [word for word in sys.argv[1:] if word not in ("-f", "--force", "-r", "--recover")]
    command = f"{name} {joined(words + ['--recover'] * is_saved)}"
    start = "; continue with" if is_saved else " before anything was saved; start again with"
    return f"{start}: {command}"


def _print_results(folder: Path) -> None:
    path = folder / METRICS_FILE
    if not path.exists():  # on another machine than the first
        return
    metrics = json.loads(path.read_text(encoding="utf-8"))  # with NaN, as AllenNLP writes it
    columns: dict[str, dict[str, Any]] = {}
    for prefix in ("training", "best_validation", "test"):
        names = [name for name in _ROWS if f"{prefix}_{name}" in metrics]
        if names:
            column = {name: metrics[f"{prefix}_{name}"] for name in names}
            columns[prefix.removeprefix("best_")] = column
    print(metrics_table(columns))
    epoch = metrics.get("best_epoch")  # from 0; None if no epoch was validated
    best = "" if epoch is None else f" (the best epoch, {epoch})"
    print(f"The model{best} is in {folder / ARCHIVE_FILE}", flush=True)
