"""The data loader for training language models."""

import dataclasses
from collections.abc import Iterator
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.data_loaders import DataLoader
from allennlp.data.data_loaders.data_loader import TensorDict
from allennlp.data.dataset_readers import DatasetReader, DatasetReaderInput
from allennlp.data.instance import Instance
from allennlp.data.vocabulary import Vocabulary

from allennlp_elmo_plugin.plugin.components.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.plugin.registration import configuration_errors
from allennlp_elmo_plugin.text.vocabulary import LM_NAMESPACE
from allennlp_elmo_plugin.training.processes import world_size


@DataLoader.register("truncated_bptt")
class TruncatedBpttDataLoader(DataLoader):
    """
    The batches of the dataset reader "truncated_bptt_lm", read when they are needed.

    # Parameters

    batches_per_epoch : `int`, optional (default = `None`)
        End an epoch of the trainer after this many batches instead of a pass over the text; the
        next epoch continues there. A reader with `drop_last` false, as for evaluation, ignores it
        and reads every word.
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
        self.reader = reader
        self.data_path = data_path
        if not reader.settings["drop_last"]:  # The config of training is that of evaluation, too.
            batches_per_epoch = None
        # A missing file is named before anything is trained.
        self.text = reader.text_batches(
            data_path, batches_per_epoch=batches_per_epoch, read_ahead=bool(num_workers)
        )

    def index_with(self, vocab: Vocabulary) -> None:
        self.text.words = vocab.get_token_to_index_vocabulary(LM_NAMESPACE)

    def set_target_device(self, device: torch.device) -> None:
        self.text.device = device

    def iter_instances(self) -> Iterator[Instance]:
        """Raise an error: there are none, not even for a vocabulary."""
        return iter(self.reader.read(self.data_path))

    def __len__(self) -> int:
        """Return the number of batches in the last epoch, before the first one an estimate."""
        return len(self.text)

    def __iter__(self) -> Iterator[TensorDict]:
        if self.text.words is None:
            raise ValueError("Call index_with(vocab) before taking batches from the data loader")
        if self.text.world_size > world_size():  # Training has ended, and one process evaluates.
            self.text = dataclasses.replace(self.text, rank=0, world_size=1)
        with configuration_errors():
            yield from self.text
