"""
The data loader of the language model's training, which can continue in the middle of a pass.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, Callable, Deque, Dict, Generator, Iterator, Optional, TypeVar, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.data_loaders import DataLoader
from allennlp.data.data_loaders.data_loader import TensorDict
from allennlp.data.dataset_readers import DatasetReader, DatasetReaderInput
from allennlp.data.instance import Instance
from allennlp.data.vocabulary import Vocabulary
from allennlp.nn import util

from allennlp_elmo_plugin.data.text import (
    FileDescription,
    check_files,
    describe_files,
    find_files,
)
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.data.windows import TextPosition

T = TypeVar("T")

_N_READ_AHEAD = 8


@DataLoader.register("truncated_bptt")
class TruncatedBpttDataLoader(DataLoader):
    """
    The data loader for the dataset reader "truncated_bptt_lm": batches of the reader's size, in
    order, read when they are needed. Its length, for the trainer's progress bar, is that of the
    last full pass; before the first one it is counted or, for large
    corpora, estimated (`TruncatedBpttLmReader.count_batches`).

    With `state_dict` and `load_state_dict`, a recovered run continues in the middle of a pass
    without reading the text before (`allennlp_elmo_plugin.training.ResumableTrainer`), if every
    file has the bytes that it had when the pass began (`describe_files`).

    The loader counts its passes itself, so that two loaders can share a reader and a text.

    # Parameters

    reader : `TruncatedBpttLmReader`
    data_path : `DatasetReaderInput`
    batches_per_epoch : `int`, optional (default = `None`)
        Make an epoch this many batches instead of a pass; the next epoch continues there.
    num_workers : `Optional[int]`, optional (default = `0`)
        1 to read in a thread, a few batches ahead.
    start_method : `Optional[str]`, optional (default = `None`)
        Of earlier configs, which read in another process; ignored.
    cuda_device : `Optional[Union[int, str, torch.device]]`, optional (default = `None`)
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
        # The pass that the next epoch of `batches_per_epoch` continues.
        self._batch_generator: Optional[Iterator[TensorDict]] = None
        self._n_batches: Optional[int] = None
        # The number of the next pass or, in the middle of one, of the pass after it.
        self._epoch = 0
        # Position after the last batch, or a function returning it; `None` between two passes.
        self._position: Union[None, TextPosition, Callable[[], TextPosition]] = None
        # Where the next pass continues that of another loader.
        self._start: Optional[TextPosition] = None
        # Batches of this epoch so far, and how many of them another loader made.
        self._n_given = 0
        self._n_given_before = 0
        self._files: FileDescription = {}

    def index_with(self, vocab: Vocabulary) -> None:
        self._vocab = vocab

    def set_target_device(self, device: torch.device) -> None:
        self.cuda_device = device

    def iter_instances(self) -> Iterator[Instance]:
        """Yield the instances of a pass, for a vocabulary that is made of them."""
        for instance in self.reader.read(self.data_path):
            self.reader.apply_token_indexers(instance)
            yield instance

    def __len__(self) -> int:
        if self.batches_per_epoch is not None:
            n_batches = self.batches_per_epoch
        else:
            if self._n_batches is None:
                self._n_batches = self.reader.count_batches(self.data_path)
            n_batches = self._n_batches
        return max(0, n_batches - self._n_given_before)

    def __iter__(self) -> Iterator[TensorDict]:
        if self._vocab is None:
            raise ValueError("Call index_with(vocab) before taking batches from the data loader")
        self._n_given = self._n_given_before
        limit = self.batches_per_epoch
        while limit is None or self._n_given < limit:
            batches = self._batch_generator or self._iter_batches()
            self._batch_generator = None
            for batch in batches:
                self._n_given += 1
                yield batch
                if self._n_given == limit:
                    self._batch_generator = batches  # The next epoch continues there.
                    break
            if limit is None:
                break
        self._n_given = self._n_given_before = 0

    def _iter_batches(self) -> Iterator[TensorDict]:
        """One pass, or the rest of one."""
        self._files = describe_files(find_files(self.data_path), self._files)
        start = self._start or TextPosition(self._epoch)
        self._start = None
        self.reader.set_position(self.data_path, start)
        n_windows = start.n_windows
        batches = self._read()
        if self.num_workers:
            batches = _read_ahead(batches)
        with closing(batches):
            for batch, position in batches:
                if self.cuda_device is not None:
                    batch = util.move_to_device(batch, self.cuda_device)
                self._epoch = start.epoch + 1
                self._position = position
                n_windows += 1
                yield batch
        self._epoch = start.epoch + 1
        self._position = None
        self._n_batches = n_windows

    def _read(self) -> Generator[Any, None, None]:
        """Yield each batch with the position after it, or a function returning it."""
        for batch in self.reader.read_batches(self.data_path, self._vocab):
            # It has to be asked for before the next batch is read.
            position = batch.position() if self.num_workers else batch.position
            yield self.reader.make_tensors(batch), position

    def state_dict(self) -> Dict[str, Any]:
        """
        Return the place after the batch that was yielded last, however far the loader has read
        ahead, as plain Python values.
        """
        if not self._files:
            self._files = describe_files(find_files(self.data_path))
        position = self._position() if callable(self._position) else self._position
        return {
            "epoch": self._epoch,
            "position": None if position is None else position._asdict(),
            "n_given": self._n_given,
            "n_batches": self._n_batches,
            "files": self._files,
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """
        Continue where another loader, of the same arguments and text, was: the next iteration
        yields the rest of its epoch.

        # Raises

        `ConfigurationError`
            The text has changed.
        """
        self._files = check_files(state["files"], find_files(self.data_path))
        self._batch_generator = None
        self._epoch = state["epoch"]
        position = state["position"]
        self._start = None if position is None else TextPosition(**position)
        self._position = self._start
        self._n_given = self._n_given_before = state["n_given"]
        self._n_batches = state["n_batches"]


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
