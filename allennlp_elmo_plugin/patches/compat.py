"""
What AllenNLP 2.10.1, made for torch 1.12, needs mended to train, recover and load on later ones.

Each patch is a function of its own that says which upstream file it mends, for which versions and
why, and does nothing where it is not needed.
"""

import errno
import functools
import inspect
import logging
import os
import shutil
import sys
import tarfile
import tempfile
import time
import types
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Set, Tuple, Union

import numpy
import torch
from allennlp.common import Params, Tqdm
from allennlp.common import util as common_util
from allennlp.common.checks import ConfigurationError
from allennlp.common.meta import Meta
from allennlp.data import Vocabulary
from allennlp.data import vocabulary as allennlp_vocabulary
from allennlp.data.data_loaders import multiprocess_data_loader
from allennlp.models import archival
from allennlp.training import checkpointer
from allennlp.training.learning_rate_schedulers import pytorch_lr_schedulers

from allennlp_elmo_plugin.files.locks import open_locked
from allennlp_elmo_plugin.files.whole_file import Staging, remove, sync, sync_folder, whole_file
from allennlp_elmo_plugin.patches.names import replace, replace_attribute

logger = logging.getLogger(__name__)

TORCH_VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def apply() -> None:
    """Applies every patch that the installed versions need. Applying twice changes nothing."""
    patch_plateau_scheduler()
    patch_safe_globals()
    patch_gradient_norm()
    patch_autocast()
    patch_device_of_index()
    patch_worker_lock()
    patch_archive_extraction()
    patch_files_of_runs()
    patch_checkpoint_search()
    patch_checkpoint_removal()
    patch_checkpoint_clock()
    silence_sparse_invariants()


# torch.cuda.OutOfMemoryError


def is_out_of_memory(error: RuntimeError) -> bool:
    """
    Whether a GPU ran out of memory. torch has a class for it since 1.13; before, and where a CUDA
    library fails to get its workspace, only the message tells.
    """
    class_of_torch = getattr(torch.cuda, "OutOfMemoryError", ())
    return isinstance(error, class_of_torch) or any(
        text in str(error) for text in ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    )


# ReduceLROnPlateau without `verbose`


def patch_plateau_scheduler() -> None:
    """
    `allennlp/training/learning_rate_schedulers/pytorch_lr_schedulers.py`, torch >= 2.2.

    AllenNLP passes `verbose`, which torch deprecated in 2.2 (a warning) and removed later (a
    `TypeError`), so that no config with `reduce_on_plateau` could be trained.
    """
    verbose = inspect.signature(torch.optim.lr_scheduler.ReduceLROnPlateau).parameters.get(
        "verbose"
    )
    if verbose is None or verbose.default is not False:
        scheduler_class = pytorch_lr_schedulers.ReduceOnPlateauLearningRateScheduler
        replace_attribute(scheduler_class, "__init__", _init_plateau_scheduler)


def _init_plateau_scheduler(
    self: pytorch_lr_schedulers.ReduceOnPlateauLearningRateScheduler,
    optimizer: torch.optim.Optimizer,
    mode: str = "min",
    factor: float = 0.1,
    patience: int = 10,
    verbose: bool = False,
    threshold_mode: str = "rel",
    threshold: float = 1e-4,
    cooldown: int = 0,
    min_lr: Union[float, List[float]] = 0,
    eps: float = 1e-8,
) -> None:
    if verbose:
        logger.warning(
            "reduce_on_plateau: 'verbose' is ignored, torch %s lacks it", torch.__version__
        )
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer=optimizer,
        mode=mode,  # type: ignore[arg-type]
        factor=factor,
        patience=patience,
        threshold_mode=threshold_mode,  # type: ignore[arg-type]
        threshold=threshold,
        cooldown=cooldown,
        min_lr=min_lr,
        eps=eps,
    )
    super(pytorch_lr_schedulers.ReduceOnPlateauLearningRateScheduler, self).__init__(
        scheduler  # type: ignore[arg-type]
    )


# torch.load with weights_only=True


def patch_safe_globals() -> None:
    """
    `allennlp/training/checkpointer.py`, torch >= 2.6.

    `torch.load` now refuses whatever is not a tensor or a plain Python value. A training state
    holds metrics (in the metric tracker and the plateau scheduler), and many of those are NumPy
    scalars, so `--recover` failed. NumPy's scalars are allowed; everything else stays refused.
    """
    if TORCH_VERSION >= (2, 6):
        torch.serialization.add_safe_globals(_numpy_scalar_globals())


def _numpy_scalar_globals() -> List[Any]:
    # The function that unpickles a scalar has moved in NumPy 2; files name either place.
    scalar = numpy.float64(0).__reduce__()[0]
    dtypes = {type(numpy.dtype(code)) for code in "?bBhHiIlLqQefd"}
    return [
        (scalar, "numpy.core.multiarray.scalar"),
        (scalar, "numpy._core.multiarray.scalar"),
        numpy.dtype,
        *sorted(dtypes, key=lambda dtype: dtype.__name__),
    ]


# Gradient norms with sparse gradients


def patch_gradient_norm() -> None:
    """
    `allennlp/training/gradient_descent_trainer.py`, `allennlp/nn/parallel/ddp_accelerator.py`,
    `allennlp/training/util.py`, torch >= 2.0.

    From 2.0 on `clip_grad_norm_` uses `torch._foreach_norm`, which rejects sparse gradients (seen
    on 2.3.1; 2.14.1 takes them again, on CPU at least, and like 1.12 sums duplicate rows first).
    """
    if TORCH_VERSION >= (2, 0):
        replace(torch.nn.utils.clip_grad_norm_, clip_grad_norm_)


def clip_grad_norm_(
    parameters: Union[torch.Tensor, Iterable[torch.Tensor]], max_norm: float, **kwargs: Any
) -> torch.Tensor:
    """
    `torch.nn.utils.clip_grad_norm_` for any mixture of dense and sparse gradients.

    Sparse gradients are coalesced first (several gradients of one row are summed, as in a dense
    gradient) and left so, which also spares the optimizer that work.

    # Parameters

    parameters : `Union[torch.Tensor, Iterable[torch.Tensor]]`
        Those without a gradient are skipped.
    max_norm : `float`
    kwargs : `Any`
        `norm_type`, `error_if_nonfinite`, ... of torch's function.

    # Returns

    `torch.Tensor`
        The norm of all gradients, as one vector, before clipping. Shape: ()
    """
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    stand_ins = []
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            continue
        if gradient.is_sparse:
            parameter.grad = gradient = gradient.coalesce()
            # Shape: (rows with a gradient, ...); shares memory with the gradient
            values = gradient._values()
            parameter = values.detach()
            parameter.grad = values
        stand_ins.append(parameter)
    return torch.nn.utils.clip_grad_norm_(stand_ins, max_norm, **kwargs)


# torch.cuda.amp


def patch_autocast() -> None:
    """
    `allennlp/training/gradient_descent_trainer.py`, `allennlp/nn/parallel/ddp_accelerator.py`,
    torch >= 2.4.

    The trainer enters `torch.cuda.amp.autocast` at every batch, mixed precision or not, and torch
    warns that it is deprecated each time.
    """
    if TORCH_VERSION >= (2, 4):
        amp = types.SimpleNamespace(
            autocast=lambda enabled=True: torch.amp.autocast("cuda", enabled=enabled),
            GradScaler=functools.partial(torch.amp.GradScaler, "cuda"),
        )
        replace(torch.cuda.amp, amp)


# torch.device(int)


def patch_device_of_index() -> None:
    """
    `allennlp/common/util.py` and all that import `int_to_device` from it, torch 2 built without an
    accelerator.

    `torch.device(0)` was the CUDA device 0 everywhere; now it raises where torch knows no
    accelerator, before AllenNLP can say that there is no GPU.
    """
    try:
        torch.device(0)
    except RuntimeError:
        replace(common_util.int_to_device, int_to_device)


def int_to_device(device: Union[int, torch.device]) -> torch.device:
    """The CUDA device of an index, the CPU for a negative one; a device is given back as it is."""
    if isinstance(device, torch.device):
        return device
    return torch.device("cpu") if device < 0 else torch.device("cuda", device)


# The lock of spawned workers


def patch_worker_lock() -> None:
    """
    `allennlp/data/data_loaders/multiprocess_data_loader.py`, Python >= 3.11.5.

    A worker is handed a lock of the default (fork) context whatever its start method; Python now
    refuses to send such a lock to a spawned process. The lock must be of the worker's own context.
    """
    if sys.version_info >= (3, 11, 5):
        loader_class = multiprocess_data_loader.MultiProcessDataLoader
        replace_attribute(loader_class, "_start_instance_workers", _start_instance_workers)
        replace_attribute(loader_class, "_start_batch_workers", _start_batch_workers)


def _start_instance_workers(self: Any, queue: Any, ctx: Any) -> Tuple[List[Any], List[Any]]:
    return _start_workers(self.num_workers, self._instance_worker, queue, ctx)


def _start_batch_workers(self: Any, queue: Any, ctx: Any) -> Tuple[List[Any], List[Any]]:
    return _start_workers(self.num_workers, self._batch_worker, queue, ctx)


def _start_workers(
    num_workers: int, target: Callable[..., None], queue: Any, context: Any
) -> Tuple[List[Any], List[Any]]:
    """Starts the workers; gives them and the pipe ends through which they can be told to stop."""
    lock = context.RLock()
    Tqdm.set_lock(lock)
    workers, senders = [], []
    for worker_id in range(num_workers):
        receiver, sender = context.Pipe(duplex=False)
        worker = context.Process(
            target=target, args=(worker_id, queue, lock, receiver), daemon=True
        )
        worker.start()
        workers.append(worker)
        senders.append(sender)
    return workers, senders


# Archives


def patch_archive_extraction() -> None:
    """
    `allennlp/models/archival.py` and all that import `extracted_archive` from it, Python < 3.14.

    Archives are unpacked without a filter: Python 3.12 and 3.13 warn of it, and on all of these an
    archive can write outside of the folder that it is unpacked to.
    """
    if sys.version_info < (3, 14):
        replace(archival.extracted_archive, extracted_archive)


@contextmanager
def extracted_archive(
    resolved_archive_file: Union[str, PathLike], cleanup: bool = True
) -> Iterator[str]:
    """
    Unpacks a model archive to a temporary folder.

    # Parameters

    resolved_archive_file : `Union[str, PathLike]`
        A local `.tar.gz` file.
    cleanup : `bool`, optional (default=`True`)
        Whether the folder is removed afterwards. It is always removed when unpacking fails.

    # Returns

    `Iterator[str]`
        The folder.

    # Raises

    `ConfigurationError` for a member of the archive that would lie, or link, outside of the folder.
    """
    folder = tempfile.mkdtemp()
    try:
        logger.info("extracting archive file %s to temp dir %s", resolved_archive_file, folder)
        try:
            with tarfile.open(resolved_archive_file, "r:gz") as archive:
                _extract_all(archive, folder)
        except BaseException:
            cleanup = True
            raise
        yield folder
    finally:
        if cleanup:
            logger.info("removing temporary unarchived model dir at %s", folder)
            shutil.rmtree(folder, ignore_errors=True)


def _extract_all(archive: tarfile.TarFile, folder: str) -> None:
    has_filters = hasattr(tarfile, "data_filter")  # Python's security releases of 2023 and later
    for member in archive:
        # One by one: a link unpacked before can lead the next member elsewhere.
        if not _stays_inside(member, folder):
            raise ConfigurationError(
                f"{archive.name!r}: refusing to unpack {member.name!r}, which would lie or link "
                "outside of the archive's folder. AllenNLP wrote no such archive: don't use it."
            )
        if has_filters:
            archive.extract(member, folder, filter="data")
        else:
            archive.extract(member, folder)


def _stays_inside(member: tarfile.TarInfo, folder: str) -> bool:
    paths = [os.path.join(folder, member.name)]
    if member.issym():
        paths.append(os.path.join(folder, os.path.dirname(member.name), member.linkname))
    elif member.islnk():
        paths.append(os.path.join(folder, member.linkname))
    elif not (member.isfile() or member.isdir()):
        return False
    root = os.path.realpath(folder)
    return all(os.path.commonpath([root, os.path.realpath(path)]) == root for path in paths)


# The other files of a run


# AllenNLP's own.
_params_to_file = Params.to_file
_meta_to_file = Meta.to_file
_vocabulary_to_files = Vocabulary.save_to_files


def patch_files_of_runs() -> None:
    """
    `allennlp/common/params.py`, `allennlp/common/meta.py`, `allennlp/data/vocabulary.py`, all
    versions.

    When a run is recovered, its config, its meta data and its vocabulary are written again, over
    those that are there: a kill in between left the run with truncated ones. Now a file is replaced
    when the new one is complete.

    A vocabulary is locked by the package filelock: where the file system has no locks, some of its
    versions wait for ever, others leave a lock file behind when they are killed. And in a folder
    that can't be written to, a vocabulary without a lock file could not be read.
    """
    replace_attribute(Params, "to_file", _save_params)
    replace_attribute(Meta, "to_file", _save_meta)
    replace_attribute(Vocabulary, "save_to_files", _save_vocabulary)
    replace_attribute(allennlp_vocabulary, "FileLock", _lock_vocabulary)


_VOCABULARY_LOCK = ".lock"  # AllenNLP's name


# All nodes of distributed training write these, and may share the folder: one waits for the other.


def _save_params(self: Params, params_file: str, *args: Any, **kwargs: Any) -> None:
    with whole_file(params_file, wait=True) as new:
        _params_to_file(self, new, *args, **kwargs)


def _save_meta(self: Meta, path: Union[str, "PathLike[str]"]) -> None:
    with whole_file(path, wait=True) as new:
        _meta_to_file(self, new)


def _save_vocabulary(self: Vocabulary, directory: str) -> None:
    os.makedirs(directory, exist_ok=True)
    with (
        open_locked(os.path.join(directory, _VOCABULARY_LOCK), wait=True),
        Staging(Path(directory, ".partial"), directory) as staging,  # hidden: not a namespace
    ):
        staging.clear()
        new = staging.path / "new"
        _vocabulary_to_files(self, str(new))
        remove(new / _VOCABULARY_LOCK)
        sync(new)
        for name in os.listdir(new):
            os.replace(new / name, os.path.join(directory, name))
        sync_folder(directory)


@contextmanager
def _lock_vocabulary(path: str, read_only_ok: bool = False) -> Iterator[None]:
    try:
        lock = open_locked(path, wait=True)
    except OSError as error:
        if not read_only_ok or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        yield
        return
    with lock:
        yield


# Checkpoints


def patch_checkpoint_search() -> None:
    """
    `allennlp/training/checkpointer.py`, all versions.

    Checkpoints are found by a glob that begins with the folder of the run. In one with `[`, `*`
    or `?` in its name it finds none: training failed after the first epoch, and a recovered run
    started from its beginning.
    """
    replace_attribute(checkpointer.Checkpointer, "_find_all_checkpoints", _find_all_checkpoints)


def _find_all_checkpoints(self: checkpointer.Checkpointer) -> Set[Tuple[int, int]]:
    ending = f"_w{self._rank}.th" if self.state_is_sharded else ".th"
    names = [name for name in os.listdir(self._serialization_dir) if name.endswith(ending)]
    return {point for point in map(self._parse_model_state_path, names) if point is not None}


def patch_checkpoint_removal() -> None:
    """
    `allennlp/training/checkpointer.py`, all versions.

    An old checkpoint is removed by a pattern that also fits every later one whose number begins
    with the same digits: with that of batch 5 went those of 50 to 59, sometimes all there were.
    """
    replace_attribute(checkpointer.Checkpointer, "_remove_checkpoint", _remove_checkpoint)


def _remove_checkpoint(
    self: checkpointer.Checkpointer, epochs_completed: int, batches_in_epoch_completed: int
) -> None:
    point = (epochs_completed, batches_in_epoch_completed)
    for name in os.listdir(self._serialization_dir):
        if point in (self._parse_model_state_path(name), self._parse_training_state_path(name)):
            os.remove(os.path.join(self._serialization_dir, name))


# AllenNLP's own.
_maybe_save = checkpointer.Checkpointer.maybe_save_checkpoint


def patch_checkpoint_clock() -> None:
    """
    `allennlp/training/checkpointer.py`, all versions.

    With `save_every_num_seconds`, no checkpoint is saved for as long as the clock is set back.
    """
    replace_attribute(checkpointer.Checkpointer, "maybe_save_checkpoint", _maybe_save_checkpoint)


def _maybe_save_checkpoint(self: checkpointer.Checkpointer, *args: Any, **kwargs: Any) -> bool:
    self._last_save_time = min(self._last_save_time, time.time())
    return _maybe_save(self, *args, **kwargs)


# Sparse gradients


def silence_sparse_invariants() -> None:
    """
    torch >= 2.9 (where `torch.sparse_coo_tensor` first asks for it).

    torch warns at the first sparse tensor unless the user has said whether its indices are to be
    checked. They are off by default; said aloud, there is no warning. A user's own choice stays.
    """
    checks = getattr(torch.sparse, "check_sparse_tensor_invariants", None)
    if checks is not None and not checks.is_enabled():
        checks.disable()
