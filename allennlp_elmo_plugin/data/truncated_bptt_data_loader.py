"""
The data loader of the language model's training, which can continue in the middle of a pass.
"""

import functools
import os
import pickle
import signal
import sys
import time
from contextlib import closing, suppress
from multiprocessing import forkserver
from queue import Empty
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import is_distributed
from allennlp.data.data_loaders import DataLoader, MultiProcessDataLoader
from allennlp.data.data_loaders.data_loader import TensorDict
from allennlp.data.dataset_readers import DatasetReader, DatasetReaderInput
from allennlp.data.instance import Instance
from allennlp.nn import util

from allennlp_elmo_plugin.child_process import end_with_parent
from allennlp_elmo_plugin.data.text import (
    FileDescription,
    check_files,
    describe_files,
    find_files,
)
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.data.windows import TextPosition
from allennlp_elmo_plugin.signals import accept_signals, signals_blocked

_BATCHES_IN_MEMORY = 8
_SECONDS_BETWEEN_LOOKS = 5.0
_SECONDS_FOR_SIGNALS = 1.0


@DataLoader.register("truncated_bptt")
class TruncatedBpttDataLoader(MultiProcessDataLoader):
    """
    AllenNLP's data loader with the only settings that are right for the dataset reader
    "truncated_bptt_lm": the reader's batch size, in order, lazily. Its length, for the trainer's
    progress bar, is that of the last full pass; before the first one it is counted or, for large
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
    num_workers : `int`, optional (default = `0`)
        1 to read in another process, while this one trains.
    start_method : `Optional[str]`, optional (default = `None`)
        How to start that process. Default: "fork", and "spawn" in distributed training, where a
        fork can hang: a thread of torch.distributed may hold one of Python's locks (CPython <
        3.12).
    cuda_device : `Optional[Union[int, str, torch.device]]`, optional (default = `None`)
        Set by the trainer.
    """

    def __init__(
        self,
        reader: DatasetReader,
        data_path: DatasetReaderInput,
        *,
        batches_per_epoch: Optional[int] = None,
        num_workers: int = 0,
        start_method: Optional[str] = None,
        cuda_device: Optional[Union[int, str, torch.device]] = None,
    ) -> None:
        if not isinstance(reader, TruncatedBpttLmReader):
            raise ConfigurationError(
                'The data loader "truncated_bptt" is for the dataset reader "truncated_bptt_lm", '
                f"not for {type(reader).__name__}"
            )
        if num_workers > 1:
            raise ConfigurationError(
                f"num_workers is {num_workers}, but one process has to read a stream of text; set "
                "it to 0 or 1"
            )
        find_files(data_path)  # a missing file is named before anything is trained
        super().__init__(
            reader,
            data_path,
            batch_size=reader.batch_size,
            batches_per_epoch=batches_per_epoch,  # type: ignore[arg-type]
            num_workers=num_workers,
            max_instances_in_memory=_BATCHES_IN_MEMORY * reader.batch_size,
            start_method=start_method or ("spawn" if is_distributed() else "fork"),
            cuda_device=cuda_device,
            quiet=True,  # Its bar would show instances, beside the trainer's of batches.
        )
        self.reader: TruncatedBpttLmReader
        self.data_path: DatasetReaderInput
        self.batches_per_epoch: Optional[int]
        self.start_method: str
        self._n_batches: Optional[int] = None
        # The number of the next pass or, in the middle of one, of the pass after it.
        self._epoch = 0
        # Where the text is after the last batch, or what returns it; `None` between two passes.
        self._position: Union[None, TextPosition, Callable[[], TextPosition]] = None
        # Where the next pass continues that of another loader.
        self._start: Optional[TextPosition] = None
        # Batches of this epoch so far, and how many of them another loader made.
        self._n_given = 0
        self._n_given_before = 0
        self._files: FileDescription = {}

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
            # Workers can't be started with a pointer to it.
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
        batches: Any = super()._iter_batches()
        with closing(batches):  # An error ends the worker, although its traceback keeps these.
            for item in batches:
                if isinstance(item, bytes):  # of a worker
                    item = pickle.loads(item)
                    if isinstance(item, ConfigurationError):
                        raise item
                batch, position = item
                if self.cuda_device is not None:
                    batch = util.move_to_device(batch, self.cuda_device)
                self._epoch = start.epoch + 1
                self._position = position
                n_windows += 1
                yield batch
        self._epoch = start.epoch + 1
        self._position = None
        self._n_batches = n_windows

    def _instances_to_batches(
        self, instance_iterator: Iterable[Instance], move_to_device: bool
    ) -> Iterator[Any]:
        """
        Yield each batch with the position after it: a worker is ahead of the training. The batches
        are made of the windows that the instances, which are not read, would be made of.
        """
        if self.reader.get_worker_info() is not None:
            return self._pickled_batches()
        return (
            (self.reader.make_tensors(batch), batch.position)
            for batch in self.reader.read_batches(self.data_path, self._vocab)
        )

    def _pickled_batches(self) -> Iterator[bytes]:
        """
        The batches of a worker, pickled here: a queue would put tensors into shared memory, which
        may be full, and which needs the worker alive until they are received.
        """
        try:
            for batch in self.reader.read_batches(self.data_path, self._vocab):
                yield pickle.dumps((self.reader.make_tensors(batch), batch.position()))
        except ConfigurationError as error:  # Its message says all: AllenNLP adds the traceback.
            yield pickle.dumps(error)
        finally:
            # A user's own reader may print, and the worker is killed. There may be no output.
            with suppress(AttributeError, OSError, ValueError):
                sys.stdout.flush()

    def _batch_worker(self, worker_id: int, queue: Any, *args: Any) -> None:
        accept_signals()
        # AllenNLP means its workers to end when this process is killed, but they don't notice it.
        end_with_parent()
        queue._on_queue_feeder_error = _end_worker
        super()._batch_worker(worker_id, queue, *args)

    def _start_batch_workers(self, queue: Any, *args: Any) -> Any:
        if self.start_method == "forkserver":
            forkserver.ensure_running()  # Its later processes should accept signals, too.
        workers: List[Any] = []
        try:
            with signals_blocked():  # until `accept_signals` in the worker
                workers, pipes = super()._start_batch_workers(queue, *args)
            # AllenNLP waits forever for a worker that was killed, for the rest of a batch that it
            # was putting there, and for a lock that it held.
            queue._writer.close()
            queue.get = functools.partial(_get, queue.get, workers)
            queue.task_done = lambda: None
        except BaseException:
            self._join_workers(workers)
            raise
        return workers, pipes

    def _join_workers(self, workers: List[Any], *_: Any) -> None:
        """
        Kill the workers. AllenNLP's way needs a lock of the queue and a pipe to each worker, which
        one that was killed may have left locked or broken; a worker has nothing to finish.
        """
        # A process that was forked while a pass was half read has a copy of its iterator.
        workers = [worker for worker in workers if worker._parent_pid == os.getpid()]
        for worker in workers:
            if worker.exitcode is None:  # When Python ends, an ended one can no longer be killed.
                worker.kill()
        for worker in workers:
            worker.join()

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


def _get(get: Callable[..., Any], workers: List[Any]) -> Any:
    """
    Return what workers have put into a queue, by its method `get`.

    # Raises

    `ChildProcessError`
        A worker has ended, and there is nothing in the queue that can be received without it.
    """
    while True:
        # What a worker put there before it ended may still be on its way.
        ended = _ended(workers)
        try:
            return get(timeout=_SECONDS_BETWEEN_LOOKS)
        except (Empty, EOFError, OSError) as error:
            if not isinstance(error, Empty):  # A batch is cut off, or its worker is not there.
                for worker in workers:
                    worker.join(1)
                ended = _ended(workers)
                if not ended:
                    raise
            if ended:
                code = ended[0].exitcode
                if code in (-signal.SIGINT, -signal.SIGTERM):
                    time.sleep(_SECONDS_FOR_SIGNALS)  # Those of Ctrl-C and `kill` come here, too.
                hint = " (it was killed; memory may be short)" if code == -signal.SIGKILL else ""
                raise ChildProcessError(
                    f"The data loader's process {ended[0].pid} has ended with exit code {code}"
                    f"{hint}. Continue with `allennlp train --recover`, without "
                    '"num_workers" if it happens again'
                ) from None


def _end_worker(error: BaseException, item: Any) -> None:
    """End a worker that can't send a batch, which a queue would leave out."""
    with suppress(AttributeError, OSError, ValueError):
        print(f"The data loader can't send a batch: {error!r}", file=sys.stderr, flush=True)
    os._exit(1)


def _ended(workers: List[Any]) -> List[Any]:
    return [worker for worker in workers if not worker.is_alive()]
