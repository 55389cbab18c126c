"""
The subcommand `elmo-export`, which writes a trained language model in the layout in which ELMo
models are published.

```
allennlp elmo-export model.tar.gz my_elmo
```

writes

- `my_elmo/options.json` and `my_elmo/weights.hdf5`: what `elmo_token_embedder`, `Elmo`,
  `allennlp elmo`, AllenNLP's own ELMo and bilm-tf read
- `my_elmo/softmax.hdf5`: the output layer (`softmax/W`, `softmax/b`), for further training
- `my_elmo/vocab.txt` and `my_elmo/vocabulary`: its words, as `elmo-vocab` writes them
"""

import argparse
import os
from pathlib import Path
from typing import Union

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError
from allennlp.models.archival import CONFIG_NAME

from allennlp_elmo_plugin.bilm.checkpoints.weights import write_softmax, write_weights
from allennlp_elmo_plugin.bilm.vocabulary import write_vocabulary_file
from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.data.vocabulary import (
    VOCABULARY_FILE,
    VOCABULARY_FOLDER,
    write_vocabulary_folder,
)
from allennlp_elmo_plugin.files.model_file_names import OPTIONS_FILE, SOFTMAX_FILE, WEIGHT_FILE
from allennlp_elmo_plugin.files.output_folder import output_folder
from allennlp_elmo_plugin.models.pretrained import read_archive

_OUTPUTS = (OPTIONS_FILE, WEIGHT_FILE, SOFTMAX_FILE, VOCABULARY_FILE, VOCABULARY_FOLDER)


@Subcommand.register("elmo-export")
class ElmoExport(Command):
    """
    `allennlp elmo-export ARCHIVE_OR_DIR OUTPUT_DIR`
    """

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        description = (
            "Write a trained language model as options.json and weights.hdf5, the layout in which "
            "ELMo models are published, with its softmax and vocabulary beside them."
        )
        subparser = parser.add_parser(self.name, description=description, help=description)
        subparser.add_argument(
            "archive",
            metavar="ARCHIVE_OR_DIR",
            help="model.tar.gz of a bidirectional_lm, or the folder it was trained in (-s)",
        )
        subparser.add_argument("output", metavar="OUTPUT_DIR", help="new folder")
        subparser.add_argument(
            "-f", "--force", action="store_true", help="replace an earlier export in OUTPUT_DIR"
        )
        return self.finish(subparser, lambda args: export(args.archive, args.output, args.force))


def export(archive: str, output: Union[str, "os.PathLike[str]"], force: bool = False) -> None:
    """
    Export a language model.

    # Parameters

    archive : `str`
        A `model.tar.gz`, or the folder of a training run, which has its best weights.
    output : `str`
        A folder, new or empty. Its files appear when all are written.
    force : `bool`, optional (default = `False`)
        Replace an earlier export in it.

    # Raises

    `ConfigurationError`
        The archive has no `bidirectional_lm`, the folder is not empty, or it is that of a training
        run, which needs its own vocabulary.
    """
    if (Path(output) / CONFIG_NAME).exists() and any(Path(output).glob("*.th")):
        raise ConfigurationError(
            f"{output} is the folder of a training run, whose vocabulary an export would replace; "
            "choose another output"
        )
    with output_folder(output, _OUTPUTS, force) as folder:
        try:
            model = read_archive(archive)
        except (FileNotFoundError, ValueError) as error:
            raise ConfigurationError(str(error)) from error
        assert model.words is not None and model.softmax is not None
        model.options.write(folder / OPTIONS_FILE)
        write_weights(folder / WEIGHT_FILE, model.bilm)
        write_softmax(folder / SOFTMAX_FILE, model.softmax)
        write_vocabulary_file(folder / VOCABULARY_FILE, model.words)
        write_vocabulary_folder(folder / VOCABULARY_FOLDER, model.words)
    print(
        f"Written to {output}: {OPTIONS_FILE}, {WEIGHT_FILE} ({model.options.n_layers} layers, "
        f"{'both directions' if model.options.bidirectional else 'forward only'}, "
        f"{model.bilm.get_output_dim()} numbers a token), {SOFTMAX_FILE} and the vocabulary of "
        f"{model.options.n_tokens_vocab:,} words"
    )
