"""Training in the folder of a run, which one process at a time may use."""

import errno
import functools
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Optional

from allennlp.commands import train
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.files.atomic import remove
from allennlp_elmo_plugin.plugin.registration import configuration_errors
from allennlp_elmo_plugin.pretrained.file_names import CHECKPOINT_FILE, RUN_WEIGHT_FILE

logger = logging.getLogger(__name__)

# AllenNLP's own, which the plugin replaces under its name.
_train_model = train.train_model


@functools.wraps(_train_model)
def train_model(
    params: Params,
    serialization_dir: str | os.PathLike[str],
    recover: bool = False,
    force: bool = False,
    node_rank: int = 0,
    include_package: Optional[list[str]] = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """
    AllenNLP's function of this name, which also locks the folder. If a language model's training
    fails before it saves any weights, the folder is removed if it was new, so that the same command
    can start again.
    """
    # The processes of distributed training may not find the plugin by themselves.
    packages = [*(include_package or []), "allennlp_elmo_plugin.plugin.registration"]
    folder = Path(serialization_dir)
    is_ours, is_new = is_language_model(params), not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"The folder {folder} can't be made ({error.strerror}); choose another one"
        ) from error
    with configuration_errors((BlockingIOError,)), _locked(folder):
        if force and not recover:
            for path in folder.iterdir():  # AllenNLP would remove the locked folder itself.
                remove(path)
            force = False
        before = active_children()
        try:
            return _train_model(
                params, serialization_dir, recover, force, node_rank, packages, *args, **kwargs
            )
        except BaseException as error:
            _end(set(active_children()).difference(before))
            if is_ours and is_new and not is_trained(folder):
                shutil.rmtree(folder)
            if is_ours and isinstance(error, Exception) and "sparse" in str(error).lower():
                raise ConfigurationError(
                    'trainer: "gradient_descent" can\'t train a sampled softmax or a token '
                    "embedding, with sparse gradients, with this optimizer, or in several "
                    f'processes: use the trainer "language_model" ({str(error).splitlines()[-1]})'
                ) from error
            raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """
    Lock a folder for the block, or raise a `BlockingIOError`. The lock is no file in it, because
    AllenNLP starts only in an empty folder. Windows has no such locks.
    """
    if os.name == "nt":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = (
                "another process is training in this folder; wait for its end, or choose another "
                "one. In distributed training each machine needs its own folder"
            )
            raise BlockingIOError(errno.EAGAIN, message, os.fspath(folder)) from None
        except OSError as error:  # of some network file systems
            logger.warning("%s can't be locked (%s): start no other training", folder, error)
        yield
    finally:
        os.close(descriptor)


def _end(workers: set[BaseProcess]) -> None:
    """End processes by SIGTERM, so that they save. Another signal to this one kills them."""
    try:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            worker.kill()


def is_language_model(params: Params) -> bool:
    """Return whether a config trains a language model, by the names of its components."""
    parts = map(params.params.get, ("model", "dataset_reader", "data_loader"))
    types = {str(part.get("type") if isinstance(part, dict) else part) for part in parts}
    return not types.isdisjoint({"bidirectional_lm", "truncated_bptt_lm", "truncated_bptt"})


def is_trained(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder has saved weights with which training can continue."""
    names = "model_state_*.th", RUN_WEIGHT_FILE, CHECKPOINT_FILE
    return any(any(Path(folder).glob(name)) for name in names)
