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
- `my_elmo/README.md`: a model card; if a published model is exported, its own

`allennlp elmo-export model.tar.gz my_elmo.zip --zip` writes one file, as the NLPL vector repository
has them: a zip archive with `options.json`, `model.hdf5`, `vocab.txt` and `README.md`, which
simple_elmo reads, too.
"""

import argparse
import logging
import os
import shutil
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import List, Optional, Union

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.bilm.checkpoints.weights import (
    WEIGHT_DTYPES,
    write_softmax,
    write_weights,
)
from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file, write_vocabulary_file
from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.data.vocabulary import VOCABULARY_FOLDER, write_vocabulary_folder
from allennlp_elmo_plugin.files.model_file_names import (
    CARD_FILE,
    CONFIG_FILE,
    NLPL_WEIGHT_FILE,
    OPTIONS_FILE,
    SOFTMAX_FILE,
    VOCABULARY_FILE,
    WEIGHT_FILE,
)
from allennlp_elmo_plugin.files.whole import output_folder, whole_file
from allennlp_elmo_plugin.models.model_card import Training, model_card
from allennlp_elmo_plugin.models.pretrained import PretrainedLanguageModel, read_model
from allennlp_elmo_plugin.modules.elmo_files import find_model

logger = logging.getLogger(__name__)

PathLike = Union[str, "os.PathLike[str]"]

_OUTPUTS = (OPTIONS_FILE, WEIGHT_FILE, SOFTMAX_FILE, VOCABULARY_FILE, VOCABULARY_FOLDER, CARD_FILE)
_ZIPPED = (OPTIONS_FILE, NLPL_WEIGHT_FILE, VOCABULARY_FILE, CARD_FILE)
# So that the same model makes the same archive: the earliest time that one can have.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


@Subcommand.register("elmo-export")
class ElmoExport(Command):
    """
    `allennlp elmo-export MODEL OUTPUT [--zip] [--precision float16]`
    """

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        description = (
            "Write a trained language model as options.json and weights.hdf5, the layout in which "
            "ELMo models are published, with its softmax, its vocabulary and a model card."
        )
        subparser = parser.add_parser(self.name, description=description, help=description)
        subparser.add_argument(
            "model",
            metavar="MODEL",
            help="model.tar.gz of a bidirectional_lm, or the folder it was trained in (-s); or a "
            "model in any other layout (a zip archive, a folder, a short name)",
        )
        subparser.add_argument(
            "output", metavar="OUTPUT", help="new folder, or with --zip new file"
        )
        subparser.add_argument(
            "--zip",
            action="store_true",
            help="write a zip archive as the NLPL vector repository has it (options.json, "
            "model.hdf5, vocab.txt, README.md), without the softmax",
        )
        subparser.add_argument(
            "--precision",
            choices=WEIGHT_DTYPES,
            default=WEIGHT_DTYPES[0],
            help="numbers of the weights in the file: float16 has half the size, and only this "
            "package is sure to read it (it computes in float32)",
        )
        subparser.add_argument(
            "-f",
            "--force",
            action="store_true",
            help="replace an earlier export in OUTPUT, except for its model card",
        )
        return self.finish(
            subparser,
            lambda args: export(args.model, args.output, args.force, args.zip, args.precision),
        )


def export(
    model: str,
    output: PathLike,
    force: bool = False,
    zipped: bool = False,
    precision: str = WEIGHT_DTYPES[0],
) -> None:
    """
    Export a language model.

    # Parameters

    model : `str`
        A `model.tar.gz`, the folder of a training run, which has its best weights, or any other
        model; see `find_model`.
    output : `str`
        A folder, new or empty, whose files appear when all are written; with `zipped` a new file.
    force : `bool`, optional (default = `False`)
        Replace an earlier export. A README.md in the folder stays, which its author may have
        completed.
    zipped : `bool`, optional (default = `False`)
        Write a zip archive in the layout of the NLPL vector repository.
    precision : `str`, optional (default = `"float32"`)
        Type of the weights in the file, `"float32"` or `"float16"`.

    # Raises

    `ConfigurationError`
        There is no such model, the folder is not empty or named `*.zip`, the file exists, or the
        output is the folder of a training run, which needs its own vocabulary.
    """
    if zipped:
        _export_file(model, output, force, precision)
    else:
        _export_folder(model, output, force, precision)


def _export_folder(model: str, output: PathLike, force: bool, precision: str) -> None:
    output = os.path.expanduser(output)
    if Path(output).suffix.lower() == ".zip":
        raise ConfigurationError(
            f"{output}: without --zip the output is a folder; add --zip, or choose another name"
        )
    if (Path(output) / CONFIG_FILE).exists() and any(Path(output).glob("*.th")):
        raise ConfigurationError(
            f"{output} is the folder of a training run, whose vocabulary an export would replace; "
            "choose another output"
        )
    card = Path(output) / CARD_FILE
    outputs = [name for name in _OUTPUTS if name != CARD_FILE or not card.exists()]
    with output_folder(output, outputs, force) as folder:
        exported = _write(model, folder, Path(output).name, WEIGHT_FILE, precision)
        files = [OPTIONS_FILE, _weights(WEIGHT_FILE, exported)]
        if exported.softmax is not None:
            write_softmax(folder / SOFTMAX_FILE, exported.softmax)
            files.append(SOFTMAX_FILE)
        if exported.words is not None:
            write_vocabulary_folder(folder / VOCABULARY_FOLDER, exported.words)
    _report(output, exported, files, CARD_FILE in outputs)


def _export_file(model: str, output: PathLike, force: bool, precision: str) -> None:
    output = os.path.expanduser(output)
    if os.path.isfile(output) and not force:
        raise ConfigurationError(
            f"{output} exists; choose another output, or --force to replace it"
        )
    with whole_file(output) as staged, TemporaryDirectory(dir=Path(staged).parent) as files:
        folder = Path(files)
        exported = _write(model, folder, Path(output).name, NLPL_WEIGHT_FILE, precision)
        with zipfile.ZipFile(staged, "w") as archive:
            for name in _ZIPPED:
                if (folder / name).exists():
                    _add(archive, folder / name)
    _report(output, exported, [OPTIONS_FILE, _weights(NLPL_WEIGHT_FILE, exported)])
    if exported.softmax is not None:
        print("This layout has no softmax: perplexities need the model itself, or its folder")


def _add(archive: zipfile.ZipFile, path: Path) -> None:
    member = zipfile.ZipInfo(path.name, _ZIP_TIME)
    member.external_attr = 0o644 << 16
    # Weights hardly compress, and a program that doesn't unpack them can find its way in them.
    is_text = path.suffix != ".hdf5"
    member.compress_type = zipfile.ZIP_DEFLATED if is_text else zipfile.ZIP_STORED
    member.file_size = path.stat().st_size
    with open(path, "rb") as file, archive.open(member, "w") as copy:
        shutil.copyfileobj(file, copy, 2**20)


def _write(
    name: str, folder: Path, title: str, weight_file: str, precision: str
) -> PretrainedLanguageModel:
    """
    Write the files that both layouts have to a folder, and return the model.
    """
    try:
        with find_model(name) as files:
            model = read_model(files)
            if model.words is None:
                model = model._replace(words=_read_words(files.vocabulary))
            training = Training.of(files)
            card = files.options.parent / CARD_FILE
            if not training.config and card.is_file():
                shutil.copyfile(card, folder / CARD_FILE)  # It has the licence.
        model.options.write(folder / OPTIONS_FILE)
        write_weights(folder / weight_file, model.bilm, precision)
    except (FileNotFoundError, ValueError) as error:
        raise ConfigurationError(str(error)) from error
    if model.words is not None:
        write_vocabulary_file(folder / VOCABULARY_FILE, model.words)
    if not (folder / CARD_FILE).exists():
        text = model_card(title, model, training, folder / weight_file, precision)
        (folder / CARD_FILE).write_text(text, encoding="utf-8")
    return model


def _read_words(path: Optional[Path]) -> Optional[List[str]]:
    """
    Return the vocabulary of a model that works without one.
    """
    try:
        return None if path is None else read_vocabulary_file(path)
    except ValueError as error:
        logger.warning("The export has no vocabulary: %s", error)
        return None


def _weights(name: str, model: PretrainedLanguageModel) -> str:
    return (
        f"{name} ({model.options.n_layers} layers, "
        f"{'both directions' if model.options.bidirectional else 'forward only'}, "
        f"{model.bilm.get_output_dim()} dimensions per token)"
    )


def _report(
    output: PathLike, model: PretrainedLanguageModel, files: List[str], has_new_card: bool = True
) -> None:
    if model.words is not None:
        files = [*files, f"the vocabulary of {len(model.words):,} words"]
    if has_new_card:
        end = f"and a model card, {CARD_FILE}, to complete"
    else:
        end = (
            f"(the {CARD_FILE} that was there stays; check its figures, or remove it for a new one)"
        )
    print(f"Written to {output}: {', '.join(files)} {end}")
