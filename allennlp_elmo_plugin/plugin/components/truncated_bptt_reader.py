"""The dataset reader for training language models, which makes batches of windows of text."""

import inspect
from collections.abc import Iterator
from typing import Any, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.data.dataset_readers import DatasetReader, DatasetReaderInput
from allennlp.data.instance import Instance
from allennlp.data.vocabulary import Vocabulary

from allennlp_elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN
from allennlp_elmo_plugin.plugin.registration import configuration_errors
from allennlp_elmo_plugin.text.corpus import PathOrPaths
from allennlp_elmo_plugin.text.vocabulary import LM_NAMESPACE
from allennlp_elmo_plugin.training.text_batches import TextBatches


@DatasetReader.register("truncated_bptt_lm")
class TruncatedBpttLmReader(DatasetReader):
    """
    Reads text for training by truncated back-propagation through time, as bilm-tf does. It makes
    the batches of `TextBatches` for the data loader "truncated_bptt". An epoch is one pass over the
    text, and depends only on the settings and its number. In distributed training each process
    reads `batch_size` rows of one common set.

    # Parameters

    batch_size, num_steps, ..., contiguous : optional
        Those of `TextBatches`.
    max_instances : `int`, optional (default = `None`)
        Stop a pass after this many rows, those of whole batches.
    """

    def __init__(
        self,
        batch_size: int,
        num_steps: int = 20,
        max_characters_per_token: Optional[int] = MAX_CHARACTERS_PER_TOKEN,
        bidirectional: bool = True,
        shuffle_sentences: bool = False,
        drop_last: bool = True,
        seed: int = 0,
        encoding_errors: str = "strict",
        contiguous: bool = False,
        max_instances: Optional[int] = None,
    ) -> None:
        of_text = inspect.signature(TextBatches).parameters
        self.settings = {name: value for name, value in locals().items() if name in of_text}
        super().__init__(max_instances)

    def text_batches(
        self, file_path: PathOrPaths, vocab: Optional[Vocabulary] = None, **settings: Any
    ) -> TextBatches:
        """Return the batches of a text; in distributed training, those of this process."""
        info = self.get_distributed_info()
        if info is not None:
            settings.update(rank=info.global_rank, world_size=info.world_size)
        words = None if vocab is None else vocab.get_token_to_index_vocabulary(LM_NAMESPACE)
        settings.update(self.settings, max_rows=self.max_instances)
        with configuration_errors():
            return TextBatches(file_path, words, **settings)

    def _read(self, file_path: DatasetReaderInput) -> Iterator[Instance]:
        raise ConfigurationError(
            'The dataset reader "truncated_bptt_lm" makes batches, not instances: use the data '
            'loader "truncated_bptt", and a vocabulary "from_files" of `elmo-vocab`'
        )
