"""The subcommand `elmo-export` writes a language model as ELMo models are published."""

import argparse
import os
import shutil
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from allennlp_elmo_plugin.commands.command import (
    ELMO_HELP,
    Command,
    add_positional_model,
    check_installed,
)
from allennlp_elmo_plugin.files.atomic import PathLike, atomic_file, output_folder
from allennlp_elmo_plugin.pretrained import file_names as files
from allennlp_elmo_plugin.pretrained.find_model import find_model
from allennlp_elmo_plugin.pretrained.language_model import read_model
from allennlp_elmo_plugin.pretrained.model_card import model_card
from allennlp_elmo_plugin.pretrained.publish import PUBLISHED_FILES, write_published
from allennlp_elmo_plugin.pretrained.weight_file import WEIGHT_DTYPES
from allennlp_elmo_plugin.text import vocabulary

_OUTPUTS = (*PUBLISHED_FILES, files.VOCABULARY_FILE, vocabulary.VOCABULARY_FOLDER)


class ElmoExport(Command):
    """
    Write a trained language model in the layout in which ELMo models are published.

      %(prog)s model.tar.gz my_elmo

    writes my_elmo/options.json and weights.hdf5, which bilm-tf reads, too, and AllenNLP's own ELMo
    if the model reads characters, in two directions and with projections; softmax.hdf5, for further
    training; vocab.txt and vocabulary, as `elmo-vocab` writes them; and README.md, a model card.
    That of a published model is copied.

      %(prog)s model.tar.gz my_elmo.zip --zip

    writes one file in the layout of the NLPL vector repository, which simple_elmo reads:
    options.json, model.hdf5, vocab.txt and README.md, without the softmax.

      %(prog)s model.tar.gz my_elmo.onnx

    writes one file that ONNX Runtime runs without this package, from many languages, in a browser
    or on a phone. It has the model card, and computes the layers of `ElmoEmbedder`.
    """

    name = "elmo-export"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        model_help = "model.tar.gz of a bidirectional_lm, the folder it was trained in (-s), or a "
        add_positional_model(parser, model_help + ELMO_HELP)
        add("output", metavar="OUTPUT", help="new folder, NAME.onnx, or with --zip new file")
        add("--zip", action="store_true", help="write a zip archive")
        precision_help = "float16 halves the file; apart from ONNX, few programs read it"
        add("--precision", choices=WEIGHT_DTYPES, default="float32", help=precision_help)
        state_help = "the LSTM state from which sentences start in an ONNX file"
        add("--initial-state", choices=("settled", "zero"), default="settled", help=state_help)
        add("-f", "--force", action="store_true", help="replace an earlier export, not its card")

    def run(self, args: argparse.Namespace) -> None:
        settings = args.force, args.zip, args.precision, args.initial_state
        export(args.model, args.output, *settings)


def export(
    model: str,
    output: PathLike,
    force: bool = False,
    zip: bool = False,
    precision: str = "float32",
    initial_state: str = "settled",
) -> None:
    """Export a language model atomically. The arguments are those of the command."""
    path = Path(output).expanduser()
    is_onnx = path.suffix == ".onnx" and not zip
    if initial_state != "settled" and not is_onnx:
        raise ValueError("--initial-state is only for an ONNX file: call the output NAME.onnx")
    if (zip or is_onnx) and path.is_file() and not force:
        raise ValueError(f"{path} exists; choose another output, or --force to replace it")
    if is_onnx:
        check_installed("onnx")
        with atomic_file(path) as staged:
            _write_onnx(model, Path(staged), precision, initial_state)
        print(f"Written to {path}: {path.stat().st_size / 1e6:,.1f} MB")
        return
    if zip:
        with atomic_file(path) as staged, TemporaryDirectory(dir=Path(staged).parent) as parts:
            _write(model, Path(parts), path.name, True, precision)
            written = sorted(os.listdir(parts))
            with zipfile.ZipFile(staged, "w") as archive:
                for name in written:
                    archive.write(os.path.join(parts, name), name)
    else:
        is_run = (path / files.CONFIG_FILE).exists() and any(path.glob("*.th"))
        if is_run or (path / files.TRAINING_FILE).exists():
            raise ValueError(f"{path} is the folder of a training run; choose another output")
        # The author may have completed a card that is there.
        has_card = (path / files.CARD_FILE).exists()
        outputs = [name for name in _OUTPUTS if name != files.CARD_FILE or not has_card]
        with output_folder(path, outputs, force) as folder:
            _write(model, folder, path.name, False, precision)
            written = sorted({*outputs}.intersection(os.listdir(folder)))
    print(f"Written to {path}: {', '.join(written)}")


def _write_onnx(name: str, path: Path, precision: str, initial_state: str) -> None:
    from allennlp_elmo_plugin.pretrained.onnx_file import write_onnx

    with find_model(name, for_training=True) as source:
        model = read_model(source, source.vocabulary, as_published=False)
        config, metrics = source.layout.read_training(source)
        card = source.options.parent / files.CARD_FILE

        def make_card() -> str:
            if not config and card.is_file():
                return card.read_text("utf-8")  # It has the licence.
            return model_card(path.stem, model, config, metrics, path, precision)

        write_onnx(path, path.stem, model, make_card, precision, initial_state)


def _write(name: str, folder: Path, title: str, zipped: bool, precision: str) -> None:
    """Write the files of an export to a folder."""
    with find_model(name, for_training=True) as source:
        model = read_model(source, source.vocabulary)
        config, metrics = source.layout.read_training(source)
        card = source.options.parent / files.CARD_FILE
        if not config and card.is_file():
            shutil.copyfile(card, folder / files.CARD_FILE)  # It has the licence.
    write_published(folder, title, model, config, metrics, precision, zipped)
    if model.words is not None:
        vocabulary.write_vocabulary_file(folder / files.VOCABULARY_FILE, model.words)
        if not zipped:
            path = folder / vocabulary.VOCABULARY_FOLDER
            vocabulary.write_vocabulary_folder(path, model.words)
