from typing import Iterator, Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.data_loaders import DataLoader, MultiProcessDataLoader
from allennlp.data.data_loaders.data_loader import TensorDict
from allennlp.data.dataset_readers import DatasetReader, DatasetReaderInput

from allennlp_elmo_plugin.data.dataset_readers.truncated_bptt_lm import TruncatedBpttLmReader

_BATCHES_IN_MEMORY = 8


@DataLoader.register("truncated_bptt")
class TruncatedBpttDataLoader(MultiProcessDataLoader):
    """
    AllenNLP's data loader with the only settings that are right for the dataset reader
    "truncated_bptt_lm": the reader's batch size, in order, lazily. And it has a length, so that
    the trainer's progress bar shows how long an epoch takes.

    The length is that of the last full pass; before the first one it is counted or, for large
    corpora, estimated (`TruncatedBpttLmReader.count_batches`).

    # Parameters

    reader : `TruncatedBpttLmReader`
    data_path : `DatasetReaderInput`
    batches_per_epoch : `int`, optional (default = `None`)
        Make an epoch this many batches instead of a pass; the next epoch goes on from there.
    num_workers : `int`, optional (default = `0`)
        1 to read in another process, while this one trains.
    start_method : `str`, optional (default = `"fork"`)
        How to start that process.
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
        start_method: str = "fork",
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
        super().__init__(
            reader,
            data_path,
            batch_size=reader.batch_size,
            batches_per_epoch=batches_per_epoch,  # type: ignore[arg-type]
            num_workers=num_workers,
            max_instances_in_memory=_BATCHES_IN_MEMORY * reader.batch_size,
            start_method=start_method,
            cuda_device=cuda_device,
            quiet=True,  # it would show instances, beside the trainer's bar that shows batches
        )
        self.reader: TruncatedBpttLmReader
        self.data_path: DatasetReaderInput
        self.batches_per_epoch: Optional[int]
        self._n_batches: Optional[int] = None

    def __len__(self) -> int:
        if self.batches_per_epoch is not None:
            return self.batches_per_epoch
        if self._n_batches is None:
            self._n_batches = self.reader.count_batches(self.data_path)
        return self._n_batches

    def _iter_batches(self) -> Iterator[TensorDict]:
        epoch = self.reader.get_epoch(self.data_path)
        n_batches = 0
        for batch in super()._iter_batches():
            # A worker counts passes in its own copy of the reader only.
            self.reader.set_epoch(self.data_path, epoch + 1)
            n_batches += 1
            yield batch
        self._n_batches = n_batches
