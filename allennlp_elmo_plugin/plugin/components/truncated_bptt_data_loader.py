"""The data loader for training language models, which can resume within an epoch."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.data_loaders import DataLoader
from allennlp.data.data_loaders.data_loader import TensorDict
from allennlp.data.dataset_readers import DatasetReader, DatasetReaderInput
from allennlp.data.instance import Instance
from allennlp.data.vocabulary import Vocabulary
from allennlp.nn import util

from allennlp_elmo_plugin.plugin.components.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.plugin.registration import configuration_errors
from allennlp_elmo_plugin.text.corpus import digests, find_files

_N_READ_AHEAD = 8


@DataLoader.register("truncated_bptt")
class TruncatedBpttDataLoader(DataLoader):
    """
    The batches of the dataset reader "truncated_bptt_lm", read when they are needed. A recovered
    run reads its epoch again up to the place where it stopped, without making tensors.

    # Parameters

    batches_per_epoch : `int`, optional (default = `None`)
        End an epoch of the trainer after this many batches instead of a pass over the text; the
        next epoch continues there.
    num_workers : `int`, optional (default = `0`)
        With 1 or more, a thread reads a few batches ahead. `start_method` is ignored.
    """

    def __init__(
        self,
        reader: DatasetReader,
        data_path: DatasetReaderInput,
        *,
        batches_per_epoch: Optional[int] = None,
        num_workers: Optional[int] = 0,
        start_method: Optional[str] = None,
    ) -> None:
        if not isinstance(reader, TruncatedBpttLmReader):
            raise ConfigurationError(
                'The data loader "truncated_bptt" is for the dataset reader "truncated_bptt_lm", '
                f"not for {type(reader).__name__}"
            )
        with configuration_errors():
            find_files(data_path)  # a missing file is named before anything is trained
        self.reader = reader
        self.data_path = data_path
        self.batches_per_epoch = batches_per_epoch or None
        self.num_workers = num_workers
        self.cuda_device: Optional[torch.device] = None
        self._vocab: Optional[Vocabulary] = None
        # The numbers of the pass over the text, of windows in it so far, and of batches in the
        # trainer's epoch so far: now, and where the next iteration starts.
        self._position = self._start = (0, 0, 0)
        # The pass that the next epoch of `batches_per_epoch` continues.
        self._pass: Optional[Iterator[TensorDict]] = None
        self._n_batches = self.batches_per_epoch
        self._digests: Optional[dict[str, str]] = None

    def index_with(self, vocab: Vocabulary) -> None:
        self._vocab = vocab

    def set_target_device(self, device: torch.device) -> None:
        self.cuda_device = device

    def iter_instances(self) -> Iterator[Instance]:
        """Raise an error: there are none, not even for a vocabulary."""
        return iter(self.reader.read(self.data_path))

    def __len__(self) -> int:
        """Return the number of batches in the last epoch, before the first one an estimate."""
        if self._n_batches is None:
            self._n_batches = self.reader.count_batches(self.data_path)
        return max(0, self._n_batches - self._start[2])

    def __iter__(self) -> Iterator[TensorDict]:
        if self._vocab is None:
            raise ValueError("Call index_with(vocab) before taking batches from the data loader")
        limit = self.batches_per_epoch
        epoch, n_windows, n_given = self._start
        while limit is None or n_given < limit:
            batches = self._pass or self._read(epoch, n_windows)
            self._pass = None
            for batch in batches:
                n_windows += 1
                n_given += 1
                self._position = epoch, n_windows, n_given
                yield batch
                if n_given == limit:
                    self._pass = batches
                    break
            else:
                epoch, n_windows = epoch + 1, 0
                if limit is None:
                    self._n_batches = n_given
                    break
        self._start = self._position = epoch, n_windows, 0

    def _read(self, epoch: int, n_windows: int) -> Iterator[TensorDict]:
        """Yield the batches of a pass after some windows."""
        batches = self.reader.batches(self.data_path, epoch, n_windows, self._vocab)
        for batch in _read_ahead(batches) if self.num_workers else batches:
            if self.cuda_device is not None:
                batch = util.move_to_device(batch, self.cuda_device)
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the batch that was yielded last, and a digest of each file."""
        if self._digests is None:
            self._digests = digests(find_files(self.data_path))
        names = ("epoch", "n_windows", "n_given")
        return dict(zip(names, self._position), digest=self._digests)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the place in `state`. Raise a `ConfigurationError` if the text changed."""
        now = digests(find_files(self.data_path))
        changed = sorted({name for name, _ in state.get("digest", {}).items() ^ now.items()})
        if changed:
            raise ConfigurationError(
                f"The text isn't that of the checkpoint: {', '.join(changed)} changed. A recovered "
                "run continues at its place in the text: put the files back as they were, or start "
                "a new run in another folder"
            )
        self._digests = now
        self._pass = None
        self._start = self._position = state["epoch"], state["n_windows"], state["n_given"]


def _read_ahead(batches: Iterator[TensorDict]) -> Iterator[TensorDict]:
    """Read batches in a thread, a few before they are needed."""
    with ThreadPoolExecutor(1) as thread:
        read = deque(thread.submit(next, batches, None) for _ in range(_N_READ_AHEAD))
        try:
            while (batch := read.popleft().result()) is not None:
                read.append(thread.submit(next, batches, None))
                yield batch
        finally:
            thread.shutdown(cancel_futures=True)
