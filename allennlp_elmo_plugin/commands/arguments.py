"""Arguments of several commands: a language model, a device, a text and numbers."""

import argparse
import importlib.util
import logging
from pathlib import Path
from typing import Iterator, List, Tuple

import torch

from allennlp_elmo_plugin.data.text import find_files
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.files.text_lines import SentenceLine, open_lines
from allennlp_elmo_plugin.modules.elmo_files import SHORT_NAMES
from allennlp_elmo_plugin.progress import progress_bar

logger = logging.getLogger(__name__)

ELMO_HELP = (
    "folder with options.json and weights.hdf5, an archive (.zip, model.tar.gz), or the short name "
    f"of a model ({', '.join(SHORT_NAMES)})"
)
TEXT_HELP = "tokenised text, one sentence a line, plain or gzip: files, folders or globs"


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--options-file`, `--weight-file` and `--cuda-device`."""
    options_help = f"the language model: {ELMO_HELP}; or the path or address of its options (JSON)"
    parser.add_argument("--options-file", metavar="MODEL", help=f"{options_help}; default: tiny")
    weights_help = "its weights (HDF5), if they are not beside the options"
    parser.add_argument("--weight-file", metavar="FILE", help=weights_help)
    device_help = "number of the GPU, -1 for the CPU"
    parser.add_argument("--cuda-device", type=device, default=-1, help=device_help)


def add_max_occurrences(parser: argparse.ArgumentParser, default: int) -> None:
    """Add `--max-occurrences`."""
    help = "how many occurrences to use, drawn at random if there are more"
    parser.add_argument("--max-occurrences", type=int, default=default, metavar="N", help=help)


def device(text: str) -> int:
    """Return the number of a GPU that this machine has, or a negative one for the CPU."""
    number, n_gpus = int(text), torch.cuda.device_count()
    if number >= n_gpus:
        here = f"the GPUs here are 0 to {n_gpus - 1}" if n_gpus else "torch finds no GPU here"
        raise argparse.ArgumentTypeError(f"{here}, so {text} is none; leave it out to use the CPU")
    return number


def positive(text: str) -> int:
    """Return a whole number that is at least 1."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def embedder(args: argparse.Namespace) -> ElmoEmbedder:
    """Load the model that was named or, without a warning, `tiny`."""
    options_file = args.options_file or (None if args.weight_file else "tiny")
    return ElmoEmbedder(options_file, args.weight_file, args.cuda_device)


def has_matplotlib() -> bool:
    """Return whether matplotlib is installed, and warn if not."""
    if importlib.util.find_spec("matplotlib"):
        return True
    logger.warning("No pictures: they need matplotlib (pip install 'allennlp_elmo_plugin[plot]')")
    return False


def read_lines(paths: List[str]) -> Iterator[Tuple[Path, SentenceLine]]:
    """Yield the lines of all files, each with its file, and show a progress bar."""
    files = find_files(paths)
    total = sum(file.stat().st_size for file in files)
    with progress_bar(total=total, unit="B", unit_scale=True, desc="reading") as bar:
        for file in files:
            before = bar.n
            with open_lines(file) as lines:
                for line in lines:
                    yield file, line
                    bar.update(before + lines.position - bar.n)
