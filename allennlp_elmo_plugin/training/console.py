"""
What `allennlp train` of a language model prints. The log in the folder of the run has everything.
"""

import functools
import json
import logging
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Mapping

from allennlp.common import logging as allennlp_logging
from allennlp.models.archival import CONFIG_NAME

# AllenNLP's own, which the plugin replaces under its name.
_prepare_global_logging = allennlp_logging.prepare_global_logging

# Packages that log the config, setting by setting, and the names of the parameters.
_NOISY = tuple(f"allennlp.{name}." for name in ("commands", "common", "data", "models", "nn"))
_NO_PATIENCE = "You provided a validation dataset but patience was set to None"  # as bilm-tf trains
# Of the trainer, and that there is no archive yet after Ctrl-C, when a checkpoint was saved.
_NOISE = {
    "allennlp.training.gradient_descent_trainer": "Worker ",
    "root": "Training interrupted by the user, and no best model",
}


def is_language_model(config: Mapping[str, Any]) -> bool:
    """Return whether a config trains a language model with this package."""

    def type_of(section: str) -> Any:
        value = config.get(section)
        return value.get("type") if isinstance(value, Mapping) else value

    is_model = type_of("model") == "bidirectional_lm"
    return is_model or type_of("dataset_reader") == "truncated_bptt_lm"


def _trains_language_model(config: Path) -> bool:
    # As AllenNLP wrote it, perhaps with NaN
    return is_language_model(json.loads(config.read_text(encoding="utf-8")))


def _is_for_console(record: logging.LogRecord) -> bool:
    message = str(record.msg)
    if record.levelno >= logging.WARNING:
        return record.levelno > logging.WARNING or not message.startswith(_NO_PATIENCE)
    is_noise = record.name in _NOISE and message.startswith(_NOISE[record.name])
    return not record.name.startswith(_NOISY) and not is_noise


def _is_wanted() -> bool:
    """Return whether the user has asked for the whole log."""
    return bool({"ALLENNLP_DEBUG", "ALLENNLP_LOG_LEVEL"} & set(os.environ))


def _console_handlers() -> Iterator[logging.Handler]:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(
            handler, logging.FileHandler
        ):
            yield handler


@functools.wraps(_prepare_global_logging)
def prepare_global_logging(serialization_dir: Any, *args: Any, **kwargs: Any) -> None:
    """
    Call AllenNLP's function of this name. Where a language model is trained, the console leaves out
    the config and the names of the parameters, unless ALLENNLP_LOG_LEVEL or ALLENNLP_DEBUG is set.
    """
    _prepare_global_logging(serialization_dir, *args, **kwargs)
    path = Path(serialization_dir, CONFIG_NAME)
    if path.exists() and _trains_language_model(path):
        _make_quiet()


@contextmanager
def quiet_console() -> Iterator[None]:
    """Leave the same out in the `with` block, or until AllenNLP prepares the logging of a run."""
    handlers = list(_console_handlers())
    _make_quiet()
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(_is_for_console)


def make_worker_quiet() -> None:
    """
    Make the console of a process of distributed training quiet, if this is one: it imports plugins
    after its logging has been prepared.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            path = Path(handler.baseFilename)
            config = path.with_name(CONFIG_NAME)
            if path.name.startswith("out_worker") and config.exists():
                if _trains_language_model(config):
                    _make_quiet()


def _make_quiet() -> None:
    if not _is_wanted():
        for handler in _console_handlers():
            handler.addFilter(_is_for_console)
