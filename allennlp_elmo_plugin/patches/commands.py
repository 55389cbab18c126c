"""
AllenNLP's commands `push-to-hf` and `build-vocab`, for our models, and how `push-to-hf`, `evaluate`
and `predict` end.
"""

import argparse
import functools
import os
import tarfile
import zipfile
from typing import Any, Callable, Optional, TypeVar

from allennlp.commands import build_vocab, evaluate, predict
from allennlp.common import Params, push_to_hf
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models.archival import CONFIG_NAME
from allennlp.predictors import Predictor

from allennlp_elmo_plugin.data.vocabulary import check_vocabulary
from allennlp_elmo_plugin.files.model_file_names import ARCHIVE_FILE, OPTIONS_FILE, SOFTMAX_FILE
from allennlp_elmo_plugin.patches import hub
from allennlp_elmo_plugin.patches.replaced_names import replace, replace_attribute
from allennlp_elmo_plugin.signals import terminable
from allennlp_elmo_plugin.training.console import quiet_console
from allennlp_elmo_plugin.training.train_command import (
    after_signal,
    end_with,
    is_of_this_package,
    is_program,
)

T = TypeVar("T")

_make_vocab_from_params = build_vocab.make_vocab_from_params
_evaluate_from_archive = evaluate.evaluate_from_archive
_get_predictor = predict._get_predictor
_run = predict._PredictManager.run


def apply() -> None:
    """Replace AllenNLP's functions by ours. Applying twice changes nothing."""
    replace(push_to_hf, _push)
    replace_attribute(build_vocab, "make_vocab_from_params", _make_vocabulary)
    replace_attribute(evaluate, "evaluate_from_archive", _evaluate)
    replace_attribute(predict, "_get_predictor", _load_predictor)
    replace_attribute(predict._PredictManager, "run", _predict)


@functools.wraps(_make_vocab_from_params)
def _make_vocabulary(params: Params, *args: Any, **kwargs: Any) -> Vocabulary:
    """Refuse to build a vocabulary that no language model can be trained with."""
    reader: Any = params.params.get("dataset_reader")
    is_ours = isinstance(reader, dict) and reader.get("type") == "truncated_bptt_lm"
    vocab = _make_vocab_from_params(params, *args, **kwargs)
    if is_ours:
        check_vocabulary(vocab)
    return vocab


def _in_one_line(
    command: str,
    function: Callable[..., T],
    check: Callable[..., None] = lambda *args, **kwargs: None,
) -> Callable[..., T]:
    """
    Return a function that does the same, but ends AllenNLP's program, if it runs this command, with
    one line after Ctrl-C, SIGTERM or a mistake of the user that our code has found.

    # Parameters

    command : `str`
    function : `Callable[..., T]`
    check : `Callable[..., None]`, optional
        Called before it with the same arguments. It raises `ConfigurationError` for a mistake.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> T:
        if not is_program(command):
            return function(*args, **kwargs)
        number = 0
        try:
            with terminable():
                check(*args, **kwargs)
                return function(*args, **kwargs)
        except KeyboardInterrupt as error:
            number, message = after_signal(error)
        except (ConfigurationError, FileNotFoundError) as error:
            if not is_of_this_package(error):
                raise
            message = f"error: {str(error).strip()}"
        # Outside of the handlers, the progress bars that the error kept open are gone.
        end_with(message, number)

    return call


def _check_archive(archive_file: str, **kwargs: Any) -> None:
    is_address = "://" in archive_file or "!" in archive_file  # "!": a file in an archive
    if not is_address and not os.path.exists(os.path.expanduser(archive_file)):
        raise ConfigurationError(
            f"There is no archive {archive_file} (looked from {os.getcwd()}); give a model.tar.gz, "
            "or the folder of a training run"
        )
    path = os.path.expanduser(archive_file)
    # `is_zipfile` alone finds zip archives in the numbers of some models.
    if zipfile.is_zipfile(path) and not tarfile.is_tarfile(path):
        raise ConfigurationError(
            f"{archive_file} is a zip archive, not a {ARCHIVE_FILE}; `allennlp elmo-import "
            f"{archive_file} FOLDER` makes one of it. Unless there is a {SOFTMAX_FILE} in it, the "
            "model has no softmax, and must be trained before it predicts words"
        )
    if os.path.isdir(path) and not os.path.exists(os.path.join(path, CONFIG_NAME)):
        is_elmo = os.path.exists(os.path.join(path, OPTIONS_FILE))
        advice = f"; `allennlp elmo-import {archive_file} FOLDER` makes an archive of it"
        raise ConfigurationError(
            f"{archive_file} is not the folder of a training run: it has no {CONFIG_NAME}"
            + advice * is_elmo
        )


def _check_evaluation(
    archive_file: str,
    *,
    metrics_output_file: Optional[str] = None,
    predictions_output_file: Optional[str] = None,
    auto_names: str = "NONE",
    **kwargs: Any,
) -> None:
    _check_archive(archive_file)
    # With `auto_names`, AllenNLP ignores one or both.
    metrics = metrics_output_file if auto_names in ("NONE", "PREDS") else None
    predictions = predictions_output_file if auto_names in ("NONE", "METRICS") else None
    for paths in (metrics, predictions):
        for path in paths.split(",") if paths else []:
            _check_output(path)


def _check_output(path: str) -> None:
    """AllenNLP opens it after the work, or without a message that says what to do."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise ConfigurationError(f"cannot write {path}: it is a folder, give a file name")
    if not os.path.isdir(folder):
        raise ConfigurationError(
            f"cannot write {path}: there is no folder {folder}; create it first"
        )


def _check_prediction(args: argparse.Namespace) -> None:
    _check_archive(args.archive_file)
    path = args.input_file
    is_file = not args.use_dataset_reader and path != "-" and "://" not in path
    if is_file and not os.path.isfile(os.path.expanduser(path)):
        reason = "is a folder" if os.path.isdir(path) else "does not exist"
        raise ConfigurationError(
            f"{path} {reason} (looked from {os.getcwd()}); give a file with a sentence a line, or "
            "- for standard input"
        )
    if args.output_file:
        _check_output(args.output_file)


@functools.wraps(_get_predictor)
def _load_quietly(args: argparse.Namespace) -> Predictor:
    with quiet_console():
        return _get_predictor(args)


_push = _in_one_line("push-to-hf", hub.push_to_hf)
_evaluate = _in_one_line("evaluate", _evaluate_from_archive, _check_evaluation)
_load_predictor = _in_one_line("predict", _load_quietly, _check_prediction)
_predict = _in_one_line("predict", _run)
