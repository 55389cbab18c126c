"""Layers of sentences as numpy arrays: AllenNLP 0.9's `ElmoEmbedder`."""

import itertools
import logging
from typing import IO, Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy
import torch
from allennlp.common.checks import ConfigurationError, check_for_gpu
from allennlp.common.tqdm import Tqdm
from allennlp.common.util import int_to_device, lazy_groups_of
from allennlp.nn.util import remove_sentence_boundaries

from allennlp_elmo_plugin.bilm.characters import CharacterTable, sentences_to_character_ids
from allennlp_elmo_plugin.data.text import split_words
from allennlp_elmo_plugin.layers_file import LayersFile
from allennlp_elmo_plugin.modules.elmo import _ElmoBiLm
from allennlp_elmo_plugin.modules.token_embedders.elmo_token_embedder import (
    DEFAULT_OPTIONS_FILE,
    DEFAULT_WEIGHT_FILE,
)

logger = logging.getLogger(__name__)

Array = Any  # numpy.ndarray, whose type parameters differ between the supported versions

OUTPUT_FORMATS: Dict[str, Callable[[Array], Array]] = {
    "all": lambda layers: layers,
    "top": lambda layers: layers[-1],
    "average": lambda layers: layers.mean(axis=0),
}
"""What a file can hold of the `(layers, tokens, dim)` of a sentence."""


class ElmoEmbedder:
    """
    Embed sentences with a pretrained bidirectional language model.

        embedder = ElmoEmbedder("options.json", "weights.hdf5")
        layers = embedder.embed_sentence(["A", "sentence", "."])  # (3, 3, 2 * projection size)

    API and behaviour are those of the class of the same name in AllenNLP 0.9: the states
    of the language model are carried from batch to batch, so that the layers of a sentence depend
    somewhat on the sentences before it. Layer 0 is the one without context (the character encoder's
    output, twice); then follow the LSTM layers, forward half first.

    # Parameters

    options_file : `str`, optional
        Options of the language model (JSON): a path or an address.
    weight_file : `str`, optional
        Weights of the language model (HDF5): a path or an address. Both files default to the
        published original model.
    cuda_device : `int`, optional (default = `-1`)
        Number of the GPU, or -1 for the CPU.
    vocab_to_cache : `Sequence[str]`, optional (default = `None`)
        Words whose character representations are computed once, in advance. Batches of such words
        alone are then faster; the numbers are the same.

    # Raises

    `ConfigurationError`
        When the files do not describe a language model, or the GPU is not there.
    """

    def __init__(
        self,
        options_file: str = DEFAULT_OPTIONS_FILE,
        weight_file: str = DEFAULT_WEIGHT_FILE,
        cuda_device: int = -1,
        vocab_to_cache: Optional[Sequence[str]] = None,
    ) -> None:
        check_for_gpu(cuda_device)
        self.cuda_device = cuda_device
        self._device = int_to_device(cuda_device)
        # Position 0 of the cached words means padding.
        words = ["", *dict.fromkeys(vocab_to_cache)] if vocab_to_cache else []
        self._word_positions = {word: i for i, word in enumerate(words) if i > 0}
        self.elmo_bilm = _ElmoBiLm(options_file, weight_file, vocab_to_cache=words or None)
        self.elmo_bilm.eval()
        self.elmo_bilm.to(self._device)
        # As many characters a word as the model was trained with, 50 or not.
        self._table = CharacterTable(self.elmo_bilm._max_characters)

    def batch_to_embeddings(self, batch: List[List[str]]) -> Tuple[torch.Tensor, torch.Tensor]:
        """
        # Parameters

        batch : `List[List[str]]`
            Tokenised sentences, at least one of them not empty.

        # Returns

        `Tuple[torch.Tensor, torch.Tensor]`
            The layers, shape `(batch_size, layers, timesteps, 2 * projection size)`, and the mask
            of the tokens, shape `(batch_size, timesteps)`; without gradients, on the embedder's
            device.
        """
        # (batch_size, timesteps, max_characters_per_token)
        character_ids = torch.from_numpy(sentences_to_character_ids(batch, self._table))
        character_ids = character_ids.to(self._device)
        with torch.no_grad():
            output = self.elmo_bilm(character_ids, self._cached_word_inputs(batch))
            # Each pair is (batch_size, timesteps, 2 * projection size), (batch_size, timesteps)
            pairs = [
                remove_sentence_boundaries(layer, output["mask"]) for layer in output["activations"]
            ]
        # (batch_size, layers, timesteps, 2 * projection size)
        activations = torch.stack([layer for layer, _ in pairs], dim=1)
        return activations, pairs[0][1]

    def embed_sentence(self, sentence: List[str]) -> Array:
        """
        # Parameters

        sentence : `List[str]`
            One tokenised sentence.

        # Returns

        `numpy.ndarray`
            Its layers, float32 of shape `(layers, tokens, 2 * projection size)`.
        """
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: List[List[str]]) -> List[Array]:
        """
        # Parameters

        batch : `List[List[str]]`
            Tokenised sentences; any of them may be empty.

        # Returns

        `List[numpy.ndarray]`
            The layers of each sentence, float32 of shape `(layers, tokens, 2 * projection size)`.
        """
        if not any(batch):
            # There is nothing to compute, and no timestep for the model to compute it on.
            shape = (self.elmo_bilm.num_layers, 0, self.elmo_bilm.get_output_dim())
            return [numpy.zeros(shape, dtype="float32") for _ in batch]
        activations, _ = self.batch_to_embeddings(batch)
        # (batch_size, layers, timesteps, 2 * projection size)
        layers = activations.cpu().numpy()
        # Copies, so that one sentence does not keep the whole batch in memory.
        return [row[:, : len(sentence)].copy() for row, sentence in zip(layers, batch)]

    def embed_sentences(
        self, sentences: Iterable[List[str]], batch_size: int = 64
    ) -> Iterator[Array]:
        """
        Embed any number of sentences lazily, holding one batch at a time.

        # Parameters

        sentences : `Iterable[List[str]]`
            Tokenised sentences.
        batch_size : `int`, optional (default = `64`)
            Number of sentences that the model runs on at once.

        # Returns

        `Iterator[numpy.ndarray]`
            The layers of each sentence, in order: float32 of shape
            `(layers, tokens, 2 * projection size)`.
        """
        for batch in lazy_groups_of(sentences, batch_size):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: IO[Any],
        output_file_path: str,
        output_format: str = "all",
        batch_size: int = 64,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
        include_sentence_indices: bool = False,
        overwrite: bool = False,
    ) -> None:
        """
        Embed a file of sentences into an HDF5 file.

        Every line is a sentence, its tokens separated by white space (ASCII's: a no-break space is
        part of a token), a blank line an empty sentence. Every sentence becomes a float32 dataset,
        whose key is the number of its line, from 0: `"0"`, `"1"`, ... The dataset
        `sentence_to_index` of shape `(1,)` holds a JSON object that maps each sentence to its key,
        the last one where a sentence occurs again. The input is read as a stream; what grows with
        it in memory is only this mapping.

        # Parameters

        input_file : `IO`
            Open file. Bytes are read as UTF-8; text as it was opened.
        output_file_path : `str`
            The HDF5 file. It appears when all of it is written.
        output_format : `str`, optional (default = `"all"`)
            `"all"` layers, shape `(layers, tokens, 2 * projection size)`, or the `"top"` layer or
            the layers' `"average"`, shape `(tokens, 2 * projection size)`.
        batch_size : `int`, optional (default = `64`)
            Number of sentences that the model runs on at once.
        forget_sentences : `bool`, optional (default = `False`)
            Leave out `sentence_to_index`.
        use_sentence_keys : `bool`, optional (default = `False`)
            Use the sentences themselves as keys; there is then no `sentence_to_index`. No sentence
            may be blank, occur twice, or contain what HDF5 has no keys for, such as a slash.
        include_sentence_indices : `bool`, optional (default = `False`)
            Write the mapping under the name `sentence_indices` too.
        overwrite : `bool`, optional (default = `False`)
            Replace an existing output file.

        # Raises

        `ConfigurationError`
            When the options contradict each other, the output exists, a line is not UTF-8, or a
            sentence cannot be a key. Nothing is written then.
        """
        if output_format not in OUTPUT_FORMATS:
            raise ConfigurationError(
                f"output_format is {output_format!r}; it must be one of {sorted(OUTPUT_FORMATS)}"
            )
        if batch_size < 1:
            raise ConfigurationError(f"the batch size is {batch_size}; it must be at least 1")
        if include_sentence_indices and (forget_sentences or use_sentence_keys):
            raise ConfigurationError(
                "sentence indices can be included only when sentences are not forgotten and not "
                "keys themselves; leave out one of the options"
            )
        select = OUTPUT_FORMATS[output_format]
        keep_mapping = not (forget_sentences or use_sentence_keys)
        name = getattr(input_file, "name", "the input")
        sentence_to_index: Dict[str, str] = {}
        # The second iterator runs ahead of the first by at most one batch.
        sentences, ahead = itertools.tee(read_lines(input_file, name))
        arrays = self.embed_sentences(
            (split_words(sentence.encode("utf-8")) for sentence in ahead), batch_size
        )
        with LayersFile(output_file_path, overwrite) as output:
            pairs = Tqdm.tqdm(zip(sentences, arrays), unit=" sentences")
            for number, (sentence, layers) in enumerate(pairs):
                key = str(number)
                if use_sentence_keys:
                    key = sentence
                    _check_key(sentence, f"{name}, line {number + 1}")
                    if key in output:
                        raise ConfigurationError(
                            f"{name}, line {number + 1}: the sentence {sentence!r} occurs twice, "
                            "so it cannot be a key; use line numbers (no `--use-sentence-keys`)"
                        )
                elif keep_mapping:
                    sentence_to_index[sentence] = key
                output.add(key, select(layers))
            if keep_mapping:
                output.add_json("sentence_to_index", sentence_to_index)
            if include_sentence_indices:
                output.add_json("sentence_indices", sentence_to_index)

    def _cached_word_inputs(self, batch: List[List[str]]) -> Optional[torch.Tensor]:
        """Positions in the cache, `(batch_size, timesteps)`; `None` if a word is not there."""
        positions = self._word_positions
        if not positions or any(word not in positions for sentence in batch for word in sentence):
            return None
        # (batch_size, timesteps)
        return torch.nn.utils.rnn.pad_sequence(
            [
                torch.tensor([positions[word] for word in sentence], dtype=torch.long)
                for sentence in batch
            ],
            batch_first=True,
        ).to(self._device)


_WHITE_SPACE = " \t\n\r\x0b\x0c"


def read_lines(file: IO[Any], name: str) -> Iterator[str]:
    """
    # Parameters

    file : `IO`
        File of one sentence a line, open for bytes (read as UTF-8) or text.
    name : `str`
        Name of the file for messages.

    # Returns

    `Iterator[str]`
        Each line without the (ASCII) white space around it, or a byte-order mark before it.

    # Raises

    `ConfigurationError`
        When a line is not UTF-8.
    """
    for number, line in enumerate(file, start=1):
        if isinstance(line, bytes):
            try:
                line = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ConfigurationError(
                    f"{name}, line {number}: byte {error.start + 1} of the line is not UTF-8 "
                    f"({error.reason}); convert the file to UTF-8"
                ) from error
        yield line[line.startswith("\ufeff") :].strip(_WHITE_SPACE)


def _check_key(sentence: str, place: str) -> None:
    reason = None
    if not sentence:
        reason = "is blank"
    elif "/" in sentence:
        reason = "contains '/', which separates groups in HDF5"
    elif "\0" in sentence:
        reason = "contains a null character"
    elif sentence == ".":
        reason = "is '.', HDF5's name of the current group"
    if reason is not None:
        raise ConfigurationError(
            f"{place}: the sentence {reason}, so it cannot be a key; use line numbers "
            "(no `--use-sentence-keys`)"
        )
