"""The names of a model's files, and the rules by which those of other publishers are found."""

import os
import posixpath
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

OPTIONS_FILE = "options.json"
WEIGHT_FILE = "weights.hdf5"
NLPL_WEIGHT_FILE = "model.hdf5"
"""The name in the NLPL vector repository, which simple_elmo reads."""
SOFTMAX_FILE = "softmax.hdf5"
ADAGRAD_FILE = "adagrad.hdf5"
VOCABULARY_FILE = "vocab.txt"
CARD_FILE = "README.md"
ARCHIVE_FILE = "model.tar.gz"
ARCHIVED_WEIGHT_FILE = "weights.th"
RUN_WEIGHT_FILE = "best.th"
CONFIG_FILE = "config.json"
METRICS_FILE = "metrics.json"
# Those of ELMoForManyLangs
TOKEN_EMBEDDER_FILE = "token_embedder.pkl"
ENCODER_FILE = "encoder.pkl"
CHARACTERS_FILE = "char.dic"
WORDS_FILE = "word.dic"
HUB_WEIGHTS = "variables/variables"
"""The prefix of the checkpoint in a module of TensorFlow Hub."""
ARCHIVE_SUFFIXES = (".zip", ".tar.gz", ".tgz")

WHOLE_MODELS = (
    f"the folder or archive (.zip, .tar.gz) of an ELMo ({OPTIONS_FILE} and {WEIGHT_FILE}), the "
    f"{ARCHIVE_FILE} or folder of a training run, a checkpoint of bilm-tf with {OPTIONS_FILE}, or "
    "the folder or archive of a model of ELMoForManyLangs or TensorFlow Hub; fairseq's (.pt) are "
    "transformers, which only fairseq reads"
)
"""For errors about something else."""

_CHECKPOINT_DATA = ".data-?????-of-?????"

PATTERNS = (
    *("*.json", "*.hdf5", "vocab*.txt", "vocab*.txt.gz", CARD_FILE),
    # An archive of AllenNLP and its vocabulary
    *(ARCHIVED_WEIGHT_FILE, "lm_tokens.txt", "non_padded_namespaces.txt"),
    *(TOKEN_EMBEDDER_FILE, ENCODER_FILE, CHARACTERS_FILE, WORDS_FILE),
    # A checkpoint of TensorFlow
    *("checkpoint", "*.index", f"*{_CHECKPOINT_DATA}"),
)
"""What a model may consist of, in a folder or an archive; the names of folders don't count."""


def is_model_file(path: str) -> bool:
    """Return whether a file of an archive may be of a model: not if hidden or outside of it."""
    parts = path.split("/")
    is_inside = all(part and not part.startswith(".") for part in parts)
    return is_inside and any(fnmatchcase(parts[-1], pattern) for pattern in PATTERNS)


def is_hub_module(folder: Path) -> bool:
    """Return whether a folder has a module of TensorFlow Hub."""
    return (folder / f"{HUB_WEIGHTS}.index").is_file()


def has_options(folder: Path) -> bool:
    """Return whether a folder has options.json or files whose names end like this."""
    return bool(_names(folder, f"*{OPTIONS_FILE}"))


def find_options_file(folder: Path) -> Path | None:
    """Return options.json in a folder, or the only file whose name ends like this."""
    if (folder / OPTIONS_FILE).exists():
        return folder / OPTIONS_FILE
    return _only(folder, _names(folder, f"*{OPTIONS_FILE}"), OPTIONS_FILE)


def weights_of(options: Path) -> Path | None:
    """
    Return the HDF5 weights that belong to options: with `NAME_options.json`, `NAME_weights.hdf5`.
    If there are no others, also weights.hdf5, model.hdf5, or the only HDF5 file.
    """
    folder, is_only = options.parent, len(_names(options.parent, f"*{OPTIONS_FILE}")) < 2
    names = [options.name.removesuffix(OPTIONS_FILE) + WEIGHT_FILE]
    if is_only or options.name == OPTIONS_FILE:
        names += [WEIGHT_FILE, NLPL_WEIGHT_FILE]
    for name in names:
        if (folder / name).exists():
            return folder / name
    others = [name for name in _names(folder, "*.hdf5") if name not in (SOFTMAX_FILE, ADAGRAD_FILE)]
    return _only(folder, others, f"{WEIGHT_FILE} or {NLPL_WEIGHT_FILE}") if is_only else None


def options_of(weights: Path) -> Path | None:
    """Return the options that belong to HDF5 weights; the reverse of `weights_of`."""
    by_name = name_beside(str(weights))
    if by_name is not None and os.path.exists(by_name):
        return Path(by_name)
    options = find_options_file(weights.parent)
    return options if options is not None and weights_of(options) == weights else None


def name_beside(name: str) -> str | None:
    """Return the path or address of the weights of options, or the reverse, if names tell."""
    if posixpath.basename(name) == NLPL_WEIGHT_FILE:
        return name.removesuffix(NLPL_WEIGHT_FILE) + OPTIONS_FILE
    for own, other in ((OPTIONS_FILE, WEIGHT_FILE), (WEIGHT_FILE, OPTIONS_FILE)):
        if name.endswith(own):
            return name.removesuffix(own) + other
    return None


def find_vocabulary_file(folder: Path) -> Path | None:
    """Return the vocabulary in a folder: vocab.txt, AllenNLP's, or the only other `vocab*.txt`."""
    for name in (VOCABULARY_FILE, f"{VOCABULARY_FILE}.gz", "vocabulary/lm_tokens.txt"):
        if (folder / name).exists():
            return folder / name
    found = [*_names(folder, "vocab*.txt"), *_names(folder, "vocab*.txt.gz")]
    return folder / found[0] if len(found) == 1 else None


def has_checkpoint(folder: Path) -> bool:
    """Return whether a folder has a checkpoint of TensorFlow."""
    return (folder / "checkpoint").is_file() or bool(find_checkpoint_names(folder))


def find_checkpoint_names(folder: Path) -> list[str]:
    """Return the prefixes of TensorFlow's checkpoints in a folder, with index and data."""
    with_data = {name.rpartition(".data-")[0] for name in _names(folder, f"*{_CHECKPOINT_DATA}")}
    names = [name.removesuffix(".index") for name in _names(folder, "*.index")]
    return [name for name in names if name in with_data]


def is_many_langs(folder: Path) -> bool:
    """Return whether a folder has a model of ELMoForManyLangs."""
    return (folder / ENCODER_FILE).exists() or (folder / TOKEN_EMBEDDER_FILE).exists()


def is_training_run(folder: Path) -> bool:
    """Return whether a folder is AllenNLP's training run or archive, not a published model."""
    if not (folder / CONFIG_FILE).exists():
        return False
    if not has_options(folder):
        return True
    if _names(folder, f"*{WEIGHT_FILE}") or (folder / NLPL_WEIGHT_FILE).exists():
        return False
    return any((folder / name).exists() for name in (RUN_WEIGHT_FILE, ARCHIVED_WEIGHT_FILE))


def _only(folder: Path, names: Sequence[str], meant: str) -> Path | None:
    if len(names) > 1:
        raise ValueError(
            f"{folder}: it is not clear which of {', '.join(names)} is meant; name it {meant}, or "
            "give the paths of both files"
        )
    return folder / names[0] if names else None


def _names(folder: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in folder.glob(pattern) if not path.name.startswith("."))
