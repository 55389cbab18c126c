"""Keep AllenNLP 2.10.1, made for torch 1.12 and Python 3.10, working on later versions of both."""

import functools
import multiprocessing
import tarfile
import warnings
from typing import Any

import numpy as np
import torch
from allennlp.common import Tqdm
from allennlp.common import util as common_util
from allennlp.training.learning_rate_schedulers import ReduceOnPlateauLearningRateScheduler

from allennlp_elmo_plugin.plugin.registration import replace, replace_attribute
from allennlp_elmo_plugin.training.optimizer import clip_grad_norm_


def apply() -> None:
    """Apply every patch, each for the versions that its line names."""
    why = "torch before 2.14: sparse gradients"
    replace(torch.nn.utils.clip_grad_norm_, clip_grad_norm_, why)
    scheduler, why = ReduceOnPlateauLearningRateScheduler, "torch has no `verbose` any more"
    replace_attribute(scheduler, "__init__", _init_plateau_scheduler, why)
    why = "Python 3.11.5 and later: data loaders can't start spawned workers without it"
    replace_attribute(Tqdm, "get_lock", staticmethod(get_lock), why)
    why = "torch 2 without a GPU: torch's own error would hide AllenNLP's message"
    replace(common_util.int_to_device, int_to_device, why)
    # torch 2.4: the trainer enters this at every batch, mixed precision or not.
    warnings.filterwarnings("ignore", r"`torch\.cuda\.amp\.", FutureWarning)
    # torch 2.6 loads only tensors and plain Python values, but the metrics in a training state of
    # AllenNLP are often scalars of NumPy. Files name either module.
    scalar = np.float64(0).__reduce__()[0]
    allowed: list[Any] = [np.dtype, *{type(np.dtype(code)) for code in "?bBhHiIlLqQefd"}]
    allowed += [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    torch.serialization.add_safe_globals(allowed)
    # Python before 3.14: archives are unpacked without a filter.
    tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)
    if not torch.sparse.check_sparse_tensor_invariants.is_enabled():
        # torch 2.9 warns at the first sparse tensor, unless the default was set explicitly.
        torch.sparse.check_sparse_tensor_invariants.disable()


_init_original_plateau_scheduler = ReduceOnPlateauLearningRateScheduler.__init__


@functools.wraps(_init_original_plateau_scheduler)
def _init_plateau_scheduler(self: Any, *args: Any, verbose: bool = False, **kwargs: Any) -> None:
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(*args, **kwargs)
    super(ReduceOnPlateauLearningRateScheduler, self).__init__(scheduler)


# Returns the lock of the progress bars of workers. Python refuses to send AllenNLP's, which is of
# the default context (fork), to a spawned process.
get_lock = functools.cache(multiprocessing.get_context("spawn").RLock)


def int_to_device(device: int | torch.device) -> torch.device:
    """AllenNLP's function, whose `torch.device(0)` raises if torch has no accelerator."""
    if isinstance(device, torch.device):
        return device
    return torch.device("cpu") if device < 0 else torch.device("cuda", device)
