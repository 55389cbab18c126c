"""
What keeps AllenNLP 2.10.1, made for torch 1.12 and Python 3.10, working on later versions of both.
The docstring of each replacement names the upstream file and why it needs it.
"""

import functools
import inspect
import logging
import multiprocessing
import tarfile
import warnings
from typing import Any, Iterable, List, Union

import numpy
import torch
from allennlp.common import Tqdm
from allennlp.common import util as common_util
from allennlp.training.learning_rate_schedulers import ReduceOnPlateauLearningRateScheduler

from allennlp_elmo_plugin.patches.replaced_names import replace, replace_attribute

logger = logging.getLogger(__name__)


def apply() -> None:
    """
    Apply every patch. Applying twice changes nothing.
    """
    why = "torch before 2.14: sparse gradients"
    replace(torch.nn.utils.clip_grad_norm_, clip_grad_norm_, why)
    scheduler, why = ReduceOnPlateauLearningRateScheduler, "torch has no `verbose` any more"
    replace_attribute(scheduler, "__init__", _init_plateau_scheduler, why)
    # The trainer enters this at every batch, mixed precision or not.
    warnings.filterwarnings("ignore", r"`torch\.cuda\.amp\.", FutureWarning)
    torch.serialization.add_safe_globals(_numpy_scalar_globals())
    why = "Python 3.11.5 and later: data loaders' spawned workers"
    replace_attribute(Tqdm, "get_lock", staticmethod(get_lock), why)
    if hasattr(tarfile, "data_filter"):  # Python 3.14's default; AllenNLP unpacks archives without.
        tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)
    why = "torch 2 without an accelerator: AllenNLP's message instead of an error"
    replace(common_util.int_to_device, int_to_device, why)
    if not torch.sparse.check_sparse_tensor_invariants.is_enabled():
        # torch >= 2.9 warns at the first sparse tensor unless the user has chosen whether indices
        # are checked. They are not by default.
        torch.sparse.check_sparse_tensor_invariants.disable()


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
    `allennlp/training/util.py`: torch 2.6 to 2.10 reject sparse gradients (2.14 accepts them).
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
    `allennlp/training/learning_rate_schedulers/pytorch_lr_schedulers.py`.

    AllenNLP passes `verbose`, which torch has deprecated (2.6 warns) and then removed (a
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
    `allennlp/training/checkpointer.py`.

    `torch.load` refuses whatever is not a tensor or a plain Python value. A training state
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


_spawned_lock = functools.cache(lambda: multiprocessing.get_context("spawn").RLock())


def get_lock() -> Any:
    """
    Return the lock of the progress bars of workers.

    `allennlp/data/data_loaders/multiprocess_data_loader.py`, Python >= 3.11.5: AllenNLP hands its
    workers a lock of the default (fork) context whatever their start method, and Python now refuses
    to send such a lock to a spawned process.
    """
    return _spawned_lock()


def int_to_device(device: Union[int, torch.device]) -> torch.device:
    """
    Return the CUDA device of an index, the CPU for a negative one; a device is returned as it is.

    `allennlp/common/util.py` and all that import `int_to_device` from it, torch built without an
    accelerator: there `torch.device(0)`, once the CUDA device 0 everywhere, raises before AllenNLP
    can say that there is no GPU.
    """
    if isinstance(device, torch.device):
        return device
    return torch.device("cpu") if device < 0 else torch.device("cuda", device)
