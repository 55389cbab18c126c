"""
The subcommand `elmo-import`, which makes an archive of AllenNLP from a language model of bilm-tf,
or from one in the layout in which ELMo models are published.

```
allennlp elmo-import checkpoint_folder my_model --vocab-file vocab.txt
```

writes

- `my_model/model.tar.gz`: a `bidirectional_lm` for `allennlp evaluate`, `allennlp elmo-export` and
  further training (`{"type": "from_archive", "archive_file": "my_model/model.tar.gz"}`)
- `my_model/adagrad.hdf5`, from a checkpoint: the accumulators of Adagrad, with which the trainer's
  callback `adagrad_state` continues the training as if it had never stopped
"""

import argparse
import io
import os
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Callable, Dict, NoReturn, Optional, Union

import torch
from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError
from allennlp.common.meta import META_NAME, Meta
from allennlp.models.archival import CONFIG_NAME

from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import (
    make_language_model,
    read_accumulators,
)
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.data.vocabulary import (
    VOCABULARY_FOLDER,
    write_vocabulary_folder,
)
from allennlp_elmo_plugin.files.json_file import to_json
from allennlp_elmo_plugin.files.model_file_names import (
    ADAGRAD_FILE,
    ARCHIVE_FILE,
    ARCHIVED_WEIGHT_FILE,
    find_vocabulary_names,
)
from allennlp_elmo_plugin.files.whole import LateErrorFile, output_folder
from allennlp_elmo_plugin.models.pretrained import read_model
from allennlp_elmo_plugin.modules.elmo_files import ModelFiles, find_model
from allennlp_elmo_plugin.progress import step_bar
from allennlp_elmo_plugin.training.adagrad_file import write_adagrad_state

PathLike = Union[str, "os.PathLike[str]"]

_OUTPUTS = (ARCHIVE_FILE, ADAGRAD_FILE)

# The initial value of bilm-tf's accumulators, which that of the padding keeps.
_INITIAL_ACCUMULATOR = 1.0
# For options that were published without those of the training: the defaults of bilm-tf's script.
_DEFAULT_BATCH_SIZE = 128
_DEFAULT_NUM_STEPS = 20
# Trained weights hardly compress: a higher level only takes more time.
_COMPRESSION = 1


@Subcommand.register("elmo-import")
class ElmoImport(Command):
    """
    `allennlp elmo-import SOURCE OUTPUT_DIR [--vocab-file FILE]`
    """

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        description = (
            "Convert a checkpoint of bilm-tf (read without TensorFlow), or a published model "
            "(options.json and weights.hdf5), to an archive that can be trained further, evaluated "
            "and exported."
        )
        subparser = parser.add_parser(self.name, description=description, help=description)
        subparser.add_argument(
            "source",
            metavar="SOURCE",
            help="folder with options.json and a TensorFlow checkpoint (checkpoint, model.ckpt-*), "
            "or with options.json and weights.hdf5 or model.hdf5 and perhaps softmax.hdf5; a zip "
            "archive of such files; the path of one of several checkpoints, without .index; or the "
            "short name of a model",
        )
        subparser.add_argument("output", metavar="OUTPUT_DIR", help="new folder")
        subparser.add_argument(
            "--vocab-file",
            metavar="FILE",
            help="the vocabulary the model was trained with, one word a line (default: vocab.txt, "
            "vocab*.txt, vocabulary/lm_tokens.txt, or one of them with .gz, in SOURCE)",
        )
        subparser.add_argument(
            "-f", "--force", action="store_true", help="replace an earlier import in OUTPUT_DIR"
        )
        return self.finish(
            subparser,
            lambda args: import_model(args.source, args.output, args.vocab_file, args.force),
        )


def import_model(
    source: PathLike,
    output: PathLike,
    vocab_file: Optional[PathLike] = None,
    force: bool = False,
) -> None:
    """
    Make an archive. There is one copy of the softmax at a time in memory.

    # Parameters

    source : `str`
        A folder with `options.json` and a checkpoint or `weights.hdf5`, the prefix of a
        checkpoint's files, a zip archive or a short name; see `find_model`.
    output : `str`
        A folder, new or empty. Its files appear when all are written.
    vocab_file : `str`, optional (default = the one in `source`)
        The words, one a line, in the order of their ids.
    force : `bool`, optional (default = `False`)
        Replace an earlier import in it.

    # Raises

    `ConfigurationError`
        A file is missing, damaged or does not belong to the others, or the folder is not empty.
    """
    with output_folder(output, _OUTPUTS, force) as made:
        try:
            with find_model(os.fspath(source)) as files:
                report = _import_model(files, made, vocab_file)
        except (FileNotFoundError, ValueError) as error:
            raise ConfigurationError(str(error)) from error
    print(f"Written to {output}: {report}")


def _import_model(files: ModelFiles, made: Path, vocab_file: Optional[PathLike]) -> str:
    """
    Write the model in these files to the folder `made`. Return a report for the user.
    """
    if files.is_run:
        raise ConfigurationError(
            f"{files.source} is an archive of AllenNLP, or the folder of a training run, which "
            "needs no import: `allennlp elmo-export` exports it, and `pretrained_file` trains it "
            "further"
        )
    model = read_model(files, vocab_file or files.vocabulary or _no_vocabulary(files))
    options, has_softmax = model.options, model.softmax is not None
    assert model.words is not None
    if options.n_negative_samples_batch >= len(model.words):
        # Published options lack this number, and bilm-tf's default may be more than the words.
        options = replace(options, sample_softmax=False)
    with tempfile.TemporaryDirectory(dir=made) as staging:
        write_vocabulary_folder(Path(staging, VOCABULARY_FOLDER), model.words)
        _write_archive(options, model.modules(), Path(staging), made / ARCHIVE_FILE)
    del model  # whose memory the accumulators need
    n_updates = _write_accumulators(options, files.weights, made / ADAGRAD_FILE)
    return _report(options, files.source, has_softmax, n_updates)


def _no_vocabulary(files: ModelFiles) -> NoReturn:
    with files.open() as (_, weights):
        n_words = weights.n_words
    found = find_vocabulary_names(files.options.parent)
    use = "for the new softmax"
    if n_words is not None:
        use = f"of {n_words:,} words that the model was trained with"
    raise ValueError(
        f"{files.source}: {f'has {found}' if found else 'has no vocabulary'}; give with "
        f"--vocab-file the one {use}, one word a line in the order of their ids"
    )


def _write_archive(
    options: BiLmOptions, modules: torch.nn.Module, folder: Path, path: Path
) -> None:
    """
    Write the files of an archive to `folder`, which has the vocabulary, and pack them.
    """
    with LateErrorFile(folder / ARCHIVED_WEIGHT_FILE) as file:
        torch.save(modules.state_dict(), file)
    config = to_json(_config(options))
    (folder / CONFIG_NAME).write_text(config, encoding="utf-8")
    Meta.new().to_file(folder / META_NAME)
    n_bytes = (folder / ARCHIVED_WEIGHT_FILE).stat().st_size  # nearly all of the archive
    with (
        step_bar(f"packing {path.name}", n_bytes) as update,
        tarfile.open(path, "w:gz", compresslevel=_COMPRESSION) as archive,
    ):
        for name in (CONFIG_NAME, VOCABULARY_FOLDER, META_NAME):
            archive.add(folder / name, arcname=name)
        with open(folder / ARCHIVED_WEIGHT_FILE, "rb") as weights:
            member = archive.gettarinfo(arcname=ARCHIVED_WEIGHT_FILE, fileobj=weights)
            archive.addfile(member, _Counted(weights, update))


class _Counted(io.BufferedIOBase):
    """A file that tells how many bytes are read from it."""

    def __init__(self, file: IO[bytes], update: Callable[[int], Any]) -> None:
        self._file = file
        self._update = update

    def read(self, n_bytes: Optional[int] = -1) -> bytes:
        data = self._file.read(-1 if n_bytes is None else n_bytes)
        self._update(len(data))
        return data


def _config(options: BiLmOptions) -> Dict[str, Any]:
    reader = {
        "type": "truncated_bptt_lm",
        "batch_size": int(options.training.get("batch_size") or _DEFAULT_BATCH_SIZE),
        "num_steps": int(options.training.get("unroll_steps") or _DEFAULT_NUM_STEPS),
        "max_characters_per_token": (
            options.char_cnn.max_characters_per_token if options.char_cnn else None
        ),
        "bidirectional": options.bidirectional,
    }
    return {
        "dataset_reader": reader,
        "validation_dataset_reader": {**reader, "drop_last": False},
        "model": {"type": "bidirectional_lm", "options": options.to_dict()},
        "data_loader": {"type": "truncated_bptt"},
    }


def _write_accumulators(options: BiLmOptions, weights: Path, path: Path) -> Optional[int]:
    """
    Write the state of Adagrad, if there is one, in the form of the parameters. Return the number of
    updates so far.
    """
    state = read_accumulators(weights) if os.path.isfile(f"{weights}.index") else None
    if state is None:
        return None
    accumulators, n_updates = state
    bilm, softmax = make_language_model(options, accumulators)
    modules = torch.nn.ModuleDict({"bilm": bilm})
    if softmax is not None:
        modules["softmax"] = softmax
    with torch.no_grad():
        for name, parameter in modules.named_parameters():
            # The model has the gates of the highway layers with the opposite sign.
            parameter.abs_()
            if name.endswith("_char_embedding_weights"):
                parameter[0] = _INITIAL_ACCUMULATOR  # bilm-tf has no row for padding
    write_adagrad_state(path, modules.named_parameters(), n_updates)
    return n_updates


def _report(options: BiLmOptions, source: str, has_softmax: bool, n_updates: Optional[int]) -> str:
    lines = [
        f"{ARCHIVE_FILE}, a model of {options.n_layers} layers, "
        f"{'both directions' if options.bidirectional else 'forward only'}, "
        f"{'characters' if options.char_cnn else 'token embeddings'}, "
        f"{options.n_tokens_vocab:,} words, from {source}"
    ]
    if not has_softmax:
        start = (
            "its weight is the token embedding, its bias starts at zero"
            if options.share_embedding_softmax
            else "it starts from random values"
        )
        lines.append(
            f"There was no softmax (softmax.hdf5) to import: {start}. The model has to be trained "
            "before its perplexity means anything."
        )
    if n_updates is not None:
        lines.append(
            f"{ADAGRAD_FILE} has the state of Adagrad after {n_updates:,} updates, for the "
            "trainer's callback adagrad_state."
        )
    else:
        lines.append(
            "There was no state of Adagrad to import: further training starts with a fresh one."
        )
    return "\n".join(lines)
