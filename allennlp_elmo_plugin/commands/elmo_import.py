"""The subcommand `elmo-import` makes an archive of AllenNLP from a language model."""

import argparse
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import torch

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.files.atomic import LateErrorFile, PathLike, output_folder, write_text
from allennlp_elmo_plugin.files.json_file import to_json
from allennlp_elmo_plugin.pretrained import file_names as names
from allennlp_elmo_plugin.pretrained.adagrad_file import write_adagrad_state
from allennlp_elmo_plugin.pretrained.checkpoints import saved_variables
from allennlp_elmo_plugin.pretrained.find_model import find_model
from allennlp_elmo_plugin.pretrained.language_model import PretrainedLanguageModel, read_model
from allennlp_elmo_plugin.text.vocabulary import VOCABULARY_FOLDER, write_vocabulary_folder


class ElmoImport(Command):
    """
    Convert a checkpoint of bilm-tf, or a published model, to an archive.

      %(prog)s checkpoint_folder my_model --vocab-file vocab.txt

    writes my_model/model.tar.gz, a `bidirectional_lm` for `allennlp evaluate`, `allennlp
    elmo-export` and further training. From a checkpoint, it also writes my_model/adagrad.hdf5, the
    accumulators of Adagrad, with which the trainer's callback `adagrad_state` continues the
    training as if it had never stopped. TensorFlow is not needed.

    SOURCE is a folder of `elmo-train`, whose accumulators are copied; a folder or zip archive with
    options.json and either a TensorFlow checkpoint or weights.hdf5 (model.hdf5) and perhaps
    softmax.hdf5; the path of one of several checkpoints, without .index; or the short name of a
    model. The vocabulary in it is vocab.txt, vocab*.txt or vocabulary/lm_tokens.txt, perhaps with
    .gz.
    """

    name = "elmo-import"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("source", metavar="SOURCE", help="folder, zip archive, checkpoint or short name")
        add("output", metavar="OUTPUT_DIR", help="new folder")
        vocabulary_help = "the vocabulary, a word a line in the order of ids; default: in SOURCE"
        add("--vocab-file", metavar="FILE", help=vocabulary_help)
        add("-f", "--force", action="store_true", help="replace an earlier import in OUTPUT_DIR")

    def run(self, args: argparse.Namespace) -> None:
        import_model(args.source, args.output, args.vocab_file, args.force)


def import_model(
    source: PathLike, output: PathLike, vocab_file: PathLike | None = None, force: bool = False
) -> None:
    """Make an archive of a language model. The arguments are those of the command."""
    outputs = (names.ARCHIVE_FILE, names.ADAGRAD_FILE)
    with (
        output_folder(output, outputs, force) as folder,
        find_model(os.fspath(source), for_training=True) as files,
    ):
        model = read_model(files, files.vocabulary if vocab_file is None else vocab_file)
        if model.words is None:
            raise ValueError(f"{source}: has no vocabulary, or several; give --vocab-file")
        options, has_softmax = model.options, model.softmax is not None
        _write_archive(model, model.words, folder / names.ARCHIVE_FILE)
        del model  # whose memory the accumulators need
        _write_accumulators(options, files.weights, folder / names.ADAGRAD_FILE)
        accumulators = files.options.parent / names.ADAGRAD_FILE
        if (files.options.parent / names.TRAINING_FILE).exists() and accumulators.exists():
            shutil.copyfile(accumulators, folder / names.ADAGRAD_FILE)
        written = ", ".join(sorted(os.listdir(folder)))
    print(f"Written to {output}: {written}")
    if not has_softmax:
        print("There was no softmax to import: train a new one before you evaluate.")


def _write_archive(model: PretrainedLanguageModel, words: list[str], path: Path) -> None:
    options = model.options.for_words(len(words))
    with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
        folder = Path(temporary)
        write_text(folder / names.CONFIG_FILE, to_json(_config(options)))
        write_vocabulary_folder(folder / VOCABULARY_FOLDER, words)
        with LateErrorFile(folder / names.ARCHIVED_WEIGHT_FILE) as file:
            torch.save(model.modules().state_dict(), file)
        # Trained weights hardly compress: a higher level only takes more time.
        with tarfile.open(path, "w:gz", compresslevel=1) as archive:
            for name in sorted(os.listdir(folder)):
                archive.add(folder / name, arcname=name)


def _config(options: BiLmOptions) -> dict[str, Any]:
    reader = {
        "type": "truncated_bptt_lm",
        # By default those of bilm-tf's script
        "batch_size": int(options.training.get("batch_size") or 128),
        "num_steps": int(options.training.get("unroll_steps") or 20),
        "max_characters_per_token": options.max_characters_per_token,
        "bidirectional": options.bidirectional,
    }
    return {
        "dataset_reader": reader,
        "validation_dataset_reader": {**reader, "drop_last": False},
        "model": {"type": "bidirectional_lm", "options": options.to_dict()},
        "data_loader": {"type": "truncated_bptt"},
    }


def _write_accumulators(options: BiLmOptions, weights: Path, path: Path) -> None:
    """Write the state of Adagrad of a checkpoint, if it has one."""
    is_checkpoint = os.path.isfile(f"{weights}.index")
    if not is_checkpoint or not (state := saved_variables.read_accumulators(weights)):
        return
    accumulators, n_updates = state
    bilm, softmax = saved_variables.make_language_model(options, accumulators)
    modules = torch.nn.ModuleDict({"bilm": bilm, **({"softmax": softmax} if softmax else {})})
    with torch.no_grad():
        for name, parameter in modules.named_parameters():
            # The model has the gates of the highway layers with the opposite sign.
            parameter.abs_()
            if name.endswith("_char_embedding_weights"):
                parameter[0] = 1.0  # Of padding, which bilm-tf lacks: the initial value.
    write_adagrad_state(path, modules.named_parameters(), n_updates)
