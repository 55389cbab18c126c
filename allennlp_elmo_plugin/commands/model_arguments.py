"""Arguments of several commands: a language model, a device and a text."""

import argparse
from typing import Optional, Tuple

import torch
from allennlp.common.checks import ConfigurationError, check_for_gpu

from allennlp_elmo_plugin.modules.elmo_files import SHORT_NAMES

ELMO_HELP = (
    "folder with options.json and weights.hdf5, an archive (.zip, model.tar.gz), or the short name "
    f"of a model ({', '.join(SHORT_NAMES)})"
)
TEXT_HELP = "tokenised text, one sentence a line, plain or gzip: files, folders or globs"


def add_model_arguments(subparser: argparse.ArgumentParser) -> None:
    """Add `--options-file`, `--weight-file` and `--cuda-device`."""
    subparser.add_argument(
        "--options-file",
        metavar="MODEL",
        help=f"the language model: {ELMO_HELP}; or its options (JSON), a path or an address, with "
        "the weights beside them; default: tiny, the small English model of this package",
    )
    subparser.add_argument(
        "--weight-file",
        help="weights of the language model (HDF5), a path or an address, if they are not beside "
        "the options",
    )
    add_device_argument(subparser)


def add_device_argument(subparser: argparse.ArgumentParser) -> None:
    """Add `--cuda-device`."""
    subparser.add_argument(
        "--cuda-device", type=int, default=-1, help="number of the GPU, -1 for the CPU"
    )


def named_model(args: argparse.Namespace) -> Tuple[Optional[str], Optional[str]]:
    """Return the options and the weights that were named; without either, `tiny`."""
    if args.options_file is None and args.weight_file is None:
        return "tiny", None
    return args.options_file, args.weight_file


def check_device(cuda_device: int) -> None:
    """Check that there is a GPU of this number, unless it is -1."""
    try:
        check_for_gpu(cuda_device)
    except (ConfigurationError, RuntimeError, ValueError) as error:  # or a number too large
        n_gpus = torch.cuda.device_count()
        here = f"the GPUs here are 0 to {n_gpus - 1}" if n_gpus else "torch finds no GPU here"
        raise ConfigurationError(
            f"--cuda-device is {cuda_device}, but {here}; leave it out to use the CPU"
        ) from error
