"""
What keeps AllenNLP 2.10.1, made for torch 1.12 and Python 3.10, working on later versions of both.
The docstring of each replacement names the upstream file and the versions that need it.
"""

import functools
import gzip
import inspect
import logging
import os
import shutil
import sys
import tarfile
import tempfile
import threading
import warnings
import zlib
from contextlib import contextmanager
from os import PathLike
from typing import Any, Iterable, Iterator, List, Union

import numpy
import torch
from allennlp.common import Tqdm
from allennlp.common import util as common_util
from allennlp.common.checks import ConfigurationError
from allennlp.models import archival
from allennlp.training.learning_rate_schedulers import ReduceOnPlateauLearningRateScheduler

from allennlp_elmo_plugin.patches.replaced_names import replace, replace_attribute

logger = logging.getLogger(__name__)

TORCH_VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def apply() -> None:
    """
    Apply every patch that the installed versions need. Applying twice changes nothing.
    """
    if TORCH_VERSION >= (2, 0):
        why = "torch 2.0 and later: sparse gradients"
        replace(torch.nn.utils.clip_grad_norm_, clip_grad_norm_, why)
    if TORCH_VERSION >= (2, 2):
        scheduler, why = ReduceOnPlateauLearningRateScheduler, "torch 2.2 and later: no `verbose`"
        replace_attribute(scheduler, "__init__", _init_plateau_scheduler, why)
    # The trainer enters this at every batch, mixed precision or not.
    warnings.filterwarnings("ignore", r"`torch\.cuda\.amp\.", FutureWarning)
    if TORCH_VERSION >= (2, 6):
        torch.serialization.add_safe_globals(_numpy_scalar_globals())
    if sys.version_info >= (3, 11, 5):
        why = "Python 3.11.5 and later: data loaders' spawned workers"
        replace_attribute(Tqdm, "get_lock", staticmethod(get_lock), why)
    if sys.version_info < (3, 14):
        why = "Python before 3.14: nothing is unpacked outside of the archive's folder"
        replace(archival.extracted_archive, extracted_archive, why)
    why = "torch 2 without an accelerator: AllenNLP's message instead of an error"
    replace(common_util.int_to_device, int_to_device, why)
    _silence_sparse_invariants()


def is_out_of_memory(error: RuntimeError) -> bool:
    """
    Return whether a GPU ran out of memory, by the message: torch 1.12 has no class for this error,
    and a CUDA library that fails to get its workspace raises another one.
    """
    return any(text in str(error) for text in ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED"))


def clip_grad_norm_(
    parameters: Union[torch.Tensor, Iterable[torch.Tensor]],
    max_norm: float,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """
    `torch.nn.utils.clip_grad_norm_` for any mixture of dense and sparse gradients. Sparse gradients
    are coalesced (several gradients of one row are summed, as in a dense gradient).

    `allennlp/training/gradient_descent_trainer.py`, `allennlp/nn/parallel/ddp_accelerator.py`,
    `allennlp/training/util.py`, torch >= 2.0: it calls `torch._foreach_norm`, which rejects sparse
    gradients (2.3.1 does; 2.14.1 accepts them, at least on the CPU).
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
    return torch.nn.utils.clip_grad_norm_(stand_ins, max_norm, *args, **kwargs)


_init_original_plateau_scheduler = ReduceOnPlateauLearningRateScheduler.__init__


@functools.wraps(_init_original_plateau_scheduler)
def _init_plateau_scheduler(*args: Any, **kwargs: Any) -> None:
    """
    `allennlp/training/learning_rate_schedulers/pytorch_lr_schedulers.py`, torch >= 2.2.

    AllenNLP passes `verbose`, which torch deprecated in 2.2 (a warning) and removed later (a
    `TypeError`), so that no config with `reduce_on_plateau` could be trained.
    """
    arguments = inspect.signature(_init_original_plateau_scheduler).bind(*args, **kwargs).arguments
    self = arguments.pop("self")
    if arguments.pop("verbose", False):
        logger.warning(
            "reduce_on_plateau: 'verbose' is ignored, torch %s lacks it", torch.__version__
        )
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(**arguments)
    super(ReduceOnPlateauLearningRateScheduler, self).__init__(scheduler)


def _numpy_scalar_globals() -> List[Any]:
    """
    `allennlp/training/checkpointer.py`, torch >= 2.6.

    `torch.load` now refuses whatever is not a tensor or a plain Python value. A training state
    holds metrics (in the metric tracker and the plateau scheduler), and many of those are NumPy
    scalars, so `--recover` failed. NumPy's scalars are allowed; everything else stays refused.
    """
    # The function that unpickles a scalar has moved in NumPy 2; files name either place.
    scalar = numpy.float64(0).__reduce__()[0]
    dtypes = {type(numpy.dtype(code)) for code in "?bBhHiIlLqQefd"}
    return [
        (scalar, "numpy.core.multiarray.scalar"),
        (scalar, "numpy._core.multiarray.scalar"),
        numpy.dtype,
        *sorted(dtypes, key=lambda dtype: dtype.__name__),
    ]


class _Lock:
    """A lock in whose place a spawned process gets one of its own."""

    def __init__(self, lock: Any) -> None:
        self.acquire, self.release = lock.acquire, lock.release

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *raised: Any) -> None:
        self.release()

    def __reduce__(self) -> Any:
        return threading.RLock, ()


_get_lock = Tqdm.get_lock


def get_lock() -> Any:
    """
    Return the lock of the progress bars.

    `allennlp/data/data_loaders/multiprocess_data_loader.py`, Python >= 3.11.5: AllenNLP hands its
    workers a lock of the default (fork) context whatever their start method, and Python now refuses
    to send such a lock to a spawned process.
    """
    return _Lock(_get_lock())


@contextmanager
def extracted_archive(
    resolved_archive_file: Union[str, PathLike], cleanup: bool = True
) -> Iterator[str]:
    """
    Unpack a model archive (a local `.tar.gz` file) to a temporary folder, which is removed
    afterwards with `cleanup`, and always if unpacking fails.

    `allennlp/models/archival.py` and all that import `extracted_archive` from it, Python < 3.14:
    AllenNLP unpacks without a filter. Python 3.12 and 3.13 warn about that, and on all of these an
    archive can write outside of the folder.

    # Raises

    `ConfigurationError`
        The file is no archive, or a damaged one, or a member of it would lie, or link, outside of
        the folder.
    """
    folder = tempfile.mkdtemp()
    try:
        logger.info("extracting archive file %s to temp dir %s", resolved_archive_file, folder)
        try:
            with tarfile.open(resolved_archive_file, "r:gz") as archive:
                _extract_all(archive, folder)
        except BaseException as error:
            cleanup = True
            if isinstance(error, (EOFError, tarfile.TarError, gzip.BadGzipFile, zlib.error)):
                raise ConfigurationError(
                    f"{resolved_archive_file} is not a model.tar.gz, or one cut off ({error})"
                ) from error
            raise
        yield folder
    finally:
        if cleanup:
            logger.info("removing temporary unarchived model dir at %s", folder)
            shutil.rmtree(folder, ignore_errors=True)


def _extract_all(archive: tarfile.TarFile, folder: str) -> None:
    # Python's security releases of 2023 and later have filters.
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    for member in archive:
        # One by one: a link unpacked before can lead the next member elsewhere.
        if not _stays_inside(member, folder):
            raise ConfigurationError(
                f"{archive.name!r}: refusing to unpack {member.name!r}, which would lie or link "
                "outside of the archive's folder. AllenNLP wrote no such archive: don't use it."
            )
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


def int_to_device(device: Union[int, torch.device]) -> torch.device:
    """
    Return the CUDA device of an index, the CPU for a negative one; a device is returned as it is.

    `allennlp/common/util.py` and all that import `int_to_device` from it, torch 2 built without an
    accelerator: there `torch.device(0)`, once the CUDA device 0 everywhere, raises before AllenNLP
    can say that there is no GPU.
    """
    if isinstance(device, torch.device):
        return device
    return torch.device("cpu") if device < 0 else torch.device("cuda", device)


def _silence_sparse_invariants() -> None:
    """
    torch >= 2.9 warns at the first sparse tensor unless the user has chosen whether its indices are
    checked. They are not by default; setting that explicitly silences the warning. A user's own
    choice stays.
    """
    checks = getattr(torch.sparse, "check_sparse_tensor_invariants", None)
    if checks is not None and not checks.is_enabled():
        checks.disable()
