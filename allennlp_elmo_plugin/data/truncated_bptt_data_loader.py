"""
The data loader of the language model's training, which can continue in the middle of an epoch.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, Deque, Dict, Generator, Iterator, Optional, TypeVar, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.data_loaders import DataLoader
from allennlp.data.data_loaders.data_loader import TensorDict
from allennlp.data.dataset_readers import DatasetReader, DatasetReaderInput
from allennlp.data.instance import Instance
from allennlp.data.vocabulary import Vocabulary
from allennlp.nn import util

from allennlp_elmo_plugin.data.text import digests, find_files
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader

T = TypeVar("T")

_N_READ_AHEAD = 8


@DataLoader.register("truncated_bptt")
class TruncatedBpttDataLoader(DataLoader):
    """
    The data loader for the dataset reader "truncated_bptt_lm": its batches, read when they are
    needed. Its length, for the trainer's progress bar, is that of the last epoch, or before the
    first one ends that of `TruncatedBpttLmReader.count_batches`.

    With `state_dict` and `load_state_dict`, a recovered run continues in the middle of an epoch: it
    reads the text before again, at millions of words a second, without making tensors.

    # Parameters

    reader : `TruncatedBpttLmReader`
    data_path : `DatasetReaderInput`
    batches_per_epoch : `int`, optional (default = `None`)
        Make an epoch of the trainer this many batches instead of a pass over the text; the next
        epoch continues there.
    num_workers : `int`, optional (default = `0`)
        1 to read in a thread, a few batches ahead.
    start_method : `str`, optional (default = `None`)
        Of earlier configs, which read in another process; ignored.
    cuda_device : `Union[int, str, torch.device]`, optional (default = `None`)
        Set by the trainer.
    """

    def __init__(
        self,
        reader: DatasetReader,
        data_path: DatasetReaderInput,
        *,
        batches_per_epoch: Optional[int] = None,
        num_workers: Optional[int] = 0,
        start_method: Optional[str] = None,
        cuda_device: Optional[Union[int, str, torch.device]] = None,
    ) -> None:
        if not isinstance(reader, TruncatedBpttLmReader):
            raise ConfigurationError(
                'The data loader "truncated_bptt" is for the dataset reader "truncated_bptt_lm", '
                f"not for {type(reader).__name__}"
            )
        if num_workers not in (None, 0, 1):
            raise ConfigurationError(
                f"num_workers is {num_workers}, but a stream of text can be read by one alone; set "
                "it to 0 or 1"
            )
        if batches_per_epoch is not None and batches_per_epoch < 1:
            raise ConfigurationError(
                f"batches_per_epoch is {batches_per_epoch}, but must be at least 1"
            )
        find_files(data_path)  # a missing file is named before anything is trained
        self.reader = reader
        self.data_path = data_path
        self.batches_per_epoch = batches_per_epoch
        self.num_workers = num_workers or 0
        self.cuda_device = None if cuda_device is None else torch.device(cuda_device)
        self._vocab: Optional[Vocabulary] = None
        # The number of the pass over the text, and of its windows so far.
        self._epoch = self._n_windows = 0
        # How many batches of the trainer's epoch were given so far.
        self._n_given = 0
        # What the next iteration skips of both: another loader has given it.
        self._skip = self._n_given_before = 0
        # The pass that the next epoch of `batches_per_epoch` continues.
        self._pass: Optional[Iterator[TensorDict]] = None
        self._n_batches: Optional[int] = None
        self._digests: Optional[Dict[str, str]] = None

    def index_with(self, vocab: Vocabulary) -> None:
        self._vocab = vocab

    def set_target_device(self, device: torch.device) -> None:
        self.cuda_device = device

    def iter_instances(self) -> Iterator[Instance]:
        """Raise an error: there are none, not even for a vocabulary."""
        return iter(self.reader.read(self.data_path))

    def __len__(self) -> int:
        n_batches = self.batches_per_epoch or self._n_batches
        if n_batches is None:
            n_batches = self._n_batches = self.reader.count_batches(self.data_path)
        return max(0, n_batches - self._n_given_before)

    def __iter__(self) -> Iterator[TensorDict]:
        if self._vocab is None:
            raise ValueError("Call index_with(vocab) before taking batches from the data loader")
        self._n_given, self._n_given_before = self._n_given_before, 0
        limit = self.batches_per_epoch
        while limit is None or self._n_given < limit:
            batches = self._pass or self._read()
            self._pass = None
            for batch in batches:
                self._n_given += 1
                yield batch
                if self._n_given == limit:
                    self._pass = batches
                    break
            if limit is None:
                break
        self._n_given = 0

    def _read(self) -> Iterator[TensorDict]:
        """Yield the batches of a pass, or the rest of them."""
        self._n_windows, self._skip = self._skip, 0
        batches: Any = self.reader.batches(
            self.data_path, self._epoch, self._n_windows, self._vocab
        )
        if self.num_workers:
            batches = _read_ahead(batches)
        with closing(batches):
            for batch in batches:
                if self.cuda_device is not None:
                    batch = util.move_to_device(batch, self.cuda_device)
                self._n_windows += 1
                yield batch
        self._n_batches = self._n_windows
        self._epoch += 1
        self._n_windows = 0

    def state_dict(self) -> Dict[str, Any]:
        """Return the place after the batch that was yielded last, and a digest of each file."""
        if self._digests is None:
            self._digests = digests(find_files(self.data_path))
        return {
            "epoch": self._epoch,
            "n_windows": self._n_windows,
            "n_given": self._n_given,
            "digest": self._digests,
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """
        Continue where another loader, of the same arguments and text, was: the next iteration
        yields the rest of its epoch.

        # Raises

        `ConfigurationError`
            The text has changed.
        """
        now = digests(find_files(self.data_path))
        if "digest" not in state:  # an earlier version's
            position = state["position"] or {"epoch": state["epoch"], "n_windows": 0}
            state = {**position, "n_given": state["n_given"], "digest": now}
        before = state["digest"]
        for name in sorted({*before, *now}):
            if before.get(name) != now.get(name):
                change = "has changed" if name in now else "is not there any more"
                raise ConfigurationError(
                    f"The text isn't that of the checkpoint: {name} "
                    f"{change if name in before else 'is new'}. A recovered run continues at its "
                    "place in the text: put the files back as they were, or start a new run in "
                    "another folder"
                )
        self._digests = now
        self._pass = None
        self._epoch = state["epoch"]
        self._n_windows = self._skip = state["n_windows"]
        self._n_given = self._n_given_before = state["n_given"]


def _read_ahead(items: Generator[T, None, None]) -> Generator[T, None, None]:
    """Read items in a thread, a few before they are needed."""
    with closing(items), ThreadPoolExecutor(1) as thread:
        read: Deque[Future[Optional[T]]] = deque()
        try:
            while True:
                while len(read) < _N_READ_AHEAD:
                    read.append(thread.submit(next, items, None))
                item = read.popleft().result()
                if item is None:
                    return
                yield item
        finally:
            thread.shutdown(cancel_futures=True)
