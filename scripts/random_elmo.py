"""
Write an ELMo with random weights. In `allennlp elmo-benchmark` and `elmo-probe`, a trained ELMo of
the same size shows by its difference to this one what it has learned.

    python scripts/random_elmo.py my_elmo/options.json random_elmo --seed 1

The weights are those with which training begins.
"""

import argparse
from pathlib import Path

import torch

from allennlp_elmo_plugin.bilm.checkpoints.weights import write_weights
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.model_file_names import OPTIONS_FILE, WEIGHT_FILE
from allennlp_elmo_plugin.files.whole import output_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("options", type=Path, help="options.json of the trained ELMo")
    parser.add_argument("output", type=Path, help="folder to write")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--force", action="store_true", help="replace options.json and weights.hdf5 there"
    )
    arguments = parser.parse_args()
    options = BiLmOptions.from_file(arguments.options)
    torch.manual_seed(arguments.seed)
    with output_folder(arguments.output, (OPTIONS_FILE, WEIGHT_FILE), arguments.force) as folder:
        options.write(folder / OPTIONS_FILE)
        write_weights(folder / WEIGHT_FILE, BiLm(options))


if __name__ == "__main__":
    main()
