"""
The subcommand `elmo-import` makes an archive of AllenNLP from a language model of bilm-tf, or from
one in the layout in which ELMo models are published.

```
allennlp elmo-import checkpoint_folder my_model --vocab-file vocab.txt
```

writes

- `my_model/model.tar.gz`: a `bidirectional_lm` for `allennlp evaluate`, `allennlp elmo-export` and
  further training (`{"type": "from_archive", "archive_file": "my_model/model.tar.gz"}`)
- `my_model/adagrad.hdf5`, from a checkpoint: the accumulators of Adagrad, for the trainer's
  callback `adagrad_state`, with which training goes on as if it had never stopped
"""

import argparse
import json
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError
from allennlp.common.meta import META_NAME, Meta
from allennlp.data import Vocabulary
from allennlp.models.archival import CONFIG_NAME

from allennlp_elmo_plugin.bilm.character_encoder import CharacterEncoder
from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import (
    SOFTMAX_BIAS,
    SavedVariables,
    fill,
    find_variables,
    read_options,
)
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.data.vocabulary import (
    LM_NAMESPACE,
    VOCABULARY_FILE,
    VOCABULARY_FOLDER,
    write_vocabulary_folder,
)
from allennlp_elmo_plugin.files.output_folder import output_folder
from allennlp_elmo_plugin.files.whole_file import LateErrorFile
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.training.adagrad_state import write_adagrad_state

PathLike = Union[str, "os.PathLike[str]"]

OPTIONS_FILE = "options.json"
ARCHIVE_FILE = "model.tar.gz"
ADAGRAD_FILE = "adagrad.hdf5"
_WEIGHTS_FILE = "weights.th"
_OUTPUTS = (ARCHIVE_FILE, ADAGRAD_FILE)

# What bilm-tf's accumulators start from, and those of words' padding stay at.
_INITIAL_ACCUMULATOR = 1.0
# For options that were published without their training: those of bilm-tf's script.
_DEFAULT_BATCH_SIZE = 128
_DEFAULT_NUM_STEPS = 20
# Trained weights hardly compress: more effort only takes more time.
_COMPRESSION = 1


@Subcommand.register("elmo-import")
class ElmoImport(Command):
    """
    `allennlp elmo-import SOURCE OUTPUT_DIR [--vocab-file FILE]`
    """

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        description = (
            "Make an archive that trains on, evaluates and exports from a checkpoint of bilm-tf "
            "(read without TensorFlow), or from options.json and weights.hdf5."
        )
        subparser = parser.add_parser(self.name, description=description, help=description)
        subparser.add_argument(
            "source",
            metavar="SOURCE",
            help="folder with options.json and a TensorFlow checkpoint (checkpoint, model.ckpt-*), "
            "or with options.json and weights.hdf5 and perhaps softmax.hdf5; or the path of one of "
            "several checkpoints, without .index",
        )
        subparser.add_argument("output", metavar="OUTPUT_DIR", help="new folder")
        subparser.add_argument(
            "--vocab-file",
            metavar="FILE",
            help="the vocabulary the model was trained with, one word a line (default: vocab.txt, "
            "vocab*.txt or vocabulary/lm_tokens.txt in SOURCE)",
        )
        subparser.add_argument(
            "-f", "--force", action="store_true", help="replace an earlier import in OUTPUT_DIR"
        )
        return self.finish(subparser, import_from_args)


def import_from_args(args: argparse.Namespace) -> None:
    """Converts the command's arguments to those of `import_model`."""
    import_model(args.source, args.output, args.vocab_file, force=args.force)


def import_model(
    source: PathLike,
    output: PathLike,
    vocab_file: Optional[PathLike] = None,
    force: bool = False,
) -> None:
    """
    Makes the archive. Of the softmax there is one copy at a time in memory.

    # Parameters

    source : `str`
        A folder with `options.json` and a checkpoint or `weights.hdf5`, or the prefix of a
        checkpoint's files.
    output : `str`
        A folder, new or empty. Its files appear when all are written.
    vocab_file : `str`, optional (default = the one in `source`)
        The words, one a line, in the order of their ids.
    force : `bool`, optional (default = `False`)
        Whether to replace an earlier import in it.

    # Raises

    `ConfigurationError`
        A file is missing, damaged or does not belong to the others, or the folder is not empty.
    """
    with output_folder(output, _OUTPUTS, force) as made:
        model, variables, has_accumulators = _import_model(Path(source), made, vocab_file)
    _report(model, variables, has_accumulators, output)


def _import_model(
    source: Path, made: Path, vocab_file: Optional[PathLike]
) -> Tuple[BidirectionalLanguageModel, SavedVariables, bool]:
    """
    Writes to the folder `made`; the model, what it was read from, and whether that had the state of
    Adagrad.
    """
    folder = source if source.is_dir() else source.parent
    if source.is_file() and not Path(f"{source}.index").exists():
        raise ConfigurationError(
            f"{source} is a file, but elmo-import needs a folder, that of a checkpoint of bilm-tf "
            "or of options.json and weights.hdf5, or the path of a checkpoint without .index. A "
            "model.tar.gz of AllenNLP needs no import: `allennlp elmo-export` exports it, and "
            "`pretrained_file` trains it further"
        )
    try:
        variables = find_variables(source)
        values = read_options(folder / OPTIONS_FILE, variables)
        vocabulary_path = _find_vocabulary(folder, vocab_file, variables)
        words = read_vocabulary_file(vocabulary_path)
        _fit_to_vocabulary(values, words, vocabulary_path, variables)
        with tempfile.TemporaryDirectory(dir=made) as staging:
            model = _make_model(values, words, variables, Path(staging))
            _write_archive(model, Path(staging), made / ARCHIVE_FILE)
        has_accumulators = _write_accumulators(model, variables, made / ADAGRAD_FILE)
    except (FileNotFoundError, ValueError) as error:
        raise ConfigurationError(str(error)) from error
    return model, variables, has_accumulators


def _find_vocabulary(
    folder: Path, vocab_file: Optional[PathLike], variables: SavedVariables
) -> Path:
    if vocab_file is not None:
        if not os.path.isfile(vocab_file):
            raise FileNotFoundError(f"{vocab_file}: there is no such vocabulary file")
        return Path(vocab_file)
    for path in (folder / VOCABULARY_FILE, folder / VOCABULARY_FOLDER / f"{LM_NAMESPACE}.txt"):
        if path.exists():
            return path
    found = sorted(folder.glob("vocab*.txt"))
    if len(found) == 1:
        return found[0]
    n_words = variables.n_words
    raise ValueError(
        f"{folder}: {f'has {[path.name for path in found]}' if found else 'has no vocabulary'}; "
        "give with --vocab-file the one "
        + (
            f"of {n_words:,} words that the model was trained with"
            if n_words is not None
            else "for the new softmax"
        )
        + ", one word a line in the order of their ids"
    )


def _fit_to_vocabulary(
    values: Dict[str, Any],
    words: List[str],
    vocabulary_path: Path,
    variables: SavedVariables,
) -> None:
    """
    Checks that the vocabulary is that of the options and variables. Where there is no table of
    words, it may be any: the options then follow it.
    """
    if variables.n_words not in (None, len(words)):
        raise ValueError(
            f"{vocabulary_path}: has {len(words)} words, but the model has {variables.n_words}; "
            "give with --vocab-file the vocabulary that it was trained with"
        )
    values["n_tokens_vocab"] = len(words)
    options = BiLmOptions.from_dict(values)
    if options.n_negative_samples_batch >= len(words):
        # The published options don't say, and bilm-tf's default may be more than there are.
        values["sample_softmax"] = False


def _make_model(
    values: Dict[str, Any], words: List[str], variables: SavedVariables, folder: Path
) -> BidirectionalLanguageModel:
    """
    The model; its vocabulary is written to `folder`.
    """
    write_vocabulary_folder(folder / VOCABULARY_FOLDER, words)
    vocab = Vocabulary.from_files(str(folder / VOCABULARY_FOLDER))
    model = BidirectionalLanguageModel(vocab, options=values)
    fill(model.bilm, model.softmax, variables)
    return model


def _write_archive(model: BidirectionalLanguageModel, folder: Path, path: Path) -> None:
    """
    Writes what an archive is made of to `folder`, beside the vocabulary, and packs it.
    """
    with LateErrorFile(folder / _WEIGHTS_FILE) as file:
        torch.save(model.state_dict(), file)
    config = json.dumps(_config(model.options), indent=2)
    (folder / CONFIG_NAME).write_text(config, encoding="utf-8")
    Meta.new().to_file(folder / META_NAME)
    with tarfile.open(path, "w:gz", compresslevel=_COMPRESSION) as archive:
        for name in (CONFIG_NAME, _WEIGHTS_FILE, VOCABULARY_FOLDER, META_NAME):
            archive.add(folder / name, arcname=name)


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


def _write_accumulators(
    model: BidirectionalLanguageModel, variables: SavedVariables, path: Path
) -> bool:
    """
    Writes the state of Adagrad, if there is one. The model, whose own values are not needed any
    more, is where the accumulators take the form of its parameters.
    """
    accumulators = variables.accumulators()
    if accumulators is None:
        return False
    fill(model.bilm, model.softmax, accumulators)
    with torch.no_grad():
        for parameter in model.parameters():
            # The model has the gates of the highway layers with the opposite sign.
            parameter.abs_()
        if isinstance(model.bilm.token_layer, CharacterEncoder):
            # bilm-tf has no row for padding.
            model.bilm.token_layer._char_embedding_weights[0] = _INITIAL_ACCUMULATOR
    write_adagrad_state(path, model.named_parameters(), variables.n_updates())
    return True


def _report(
    model: BidirectionalLanguageModel,
    variables: SavedVariables,
    has_accumulators: bool,
    output: PathLike,
) -> None:
    options = model.options
    print(
        f"Written to {output}: {ARCHIVE_FILE}, a model of {options.n_layers} layers, "
        f"{'both directions' if options.bidirectional else 'forward only'}, "
        f"{'characters' if options.char_cnn else 'token embeddings'}, "
        f"{options.n_tokens_vocab:,} words, from {variables.source}"
    )
    if SOFTMAX_BIAS not in variables.shapes:
        start = (
            "its weight is the token embedding, its bias starts at zero"
            if options.share_embedding_softmax
            else "it starts from random values"
        )
        print(
            f"There was no softmax (softmax.hdf5) to import: {start}. The model has to be trained "
            "before it gives a perplexity that means something."
        )
    if has_accumulators:
        print(
            f"{ADAGRAD_FILE} has the state of Adagrad after {variables.n_updates():,} updates, for "
            "the trainer's callback adagrad_state."
        )
    else:
        print("There was no state of Adagrad to import: further training starts with a fresh one.")
