"""What a layout of a language model's files is: how to find, open and read them."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.atomic import PathLike
from allennlp_elmo_plugin.files.json_file import MAX_BYTES, escaped
from allennlp_elmo_plugin.pretrained import file_names as names
from allennlp_elmo_plugin.pretrained.checkpoints.published_layout import Dataset, datasets
from allennlp_elmo_plugin.pretrained.checkpoints.saved_variables import Weights
from allennlp_elmo_plugin.text.vocabulary import read_vocabulary_file


class ModelFiles(NamedTuple):
    """
    The files of a language model on this machine. `source` is its name in messages. `options` is
    the file from which its layout reads the options, and `weights` a file or the prefix of a
    checkpoint. `softmax` is `None` if there is none, or if `weights` has it.
    """

    layout: "Layout"
    source: str
    options: Path
    weights: Path
    softmax: Path | None = None
    vocabulary: Path | None = None

    @property
    def is_pair(self) -> bool:
        """Whether these are options.json and an HDF5 file, as AllenNLP reads them."""
        return self.weights.suffix == ".hdf5"

    @contextmanager
    def open(self, whole: bool = True) -> Iterator[tuple[BiLmOptions, Weights]]:
        """
        Do what `Layout.open` and, for a `whole` model, `Layout.check` describe. Errors in the block
        name the training's text.
        """
        try:
            with self.layout.open(self) as (options, weights):
                if whole:
                    self.layout.check(options, weights)
                yield options, weights
        except ValueError as error:
            raise ValueError(f"{error}{_trained_on(self.options.parent)}") from error


def _trained_on(folder: Path) -> str:
    """Return what ELMoForManyLangs' config.json and NLPL's meta.json say about the text."""
    paths = filter(Path.is_file, (folder / names.CONFIG_FILE, folder / "meta.json"))
    content = "".join(path.read_bytes()[:MAX_BYTES].decode("utf-8", "replace") for path in paths)
    texts = re.findall(r'"(?:train_path|language)": *"([^"\\]+)"', content)
    return f" (trained on {escaped(', '.join(dict.fromkeys(texts)), 200)})" if texts else ""


class Layout(ABC):
    """A layout of files. Those that the package knows are in `LAYOUTS`."""

    ending = ""
    """How the paths of weights in this layout end; all paths end with ""."""
    read_only = ""
    """Why a model can't be trained further or written in the published layout, if it can't."""
    skips_empty_batches = True
    """Whether carried states stay as they are in a batch without a token, as in AllenNLP."""

    @abstractmethod
    def find(self, folder: Path, for_training: bool) -> tuple[Path, Path] | None:
        """
        Return the options and the weights in a folder, or `None` if it has another layout. Of
        several weights, those `for_training` also have the softmax.
        """

    @abstractmethod
    def open(self, files: ModelFiles) -> AbstractContextManager[tuple[BiLmOptions, Weights]]:
        """Read the options and open the weights."""

    def check(self, options: BiLmOptions, weights: Weights) -> None:
        """Check that they fit together: a model of the options is no larger than the file."""
        weights.check(datasets(options))  # ends where the file does, however many layers there are

    def files(self, source: str, options: Path, weights: Path) -> ModelFiles:
        """Return these files with the softmax and the vocabulary in the folder of the weights."""
        folder = weights.parent
        # A checkpoint contains its own.
        own = names.SOFTMAX_FILE, names.published_softmax(weights.name)
        softmax = names.first_file(folder, own if weights.is_file() else ())
        vocabulary = names.find_vocabulary_file(folder)
        return ModelFiles(self, source, options, weights, softmax, vocabulary)

    def datasets(self, model: BiLm) -> Iterable[Dataset]:
        """Return which variables of `Weights` belong to which parameters of a model."""
        return datasets(model.options, model.forget_bias)

    def read_words(self, vocabulary: PathLike) -> list[str]:
        return read_vocabulary_file(vocabulary)

    def read_training(self, files: ModelFiles) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return sections of config.json and the metrics, if these files are of a training run."""
        return {}, {}
