"""The names of a model's files, and the rules by which those of other publishers are found."""

import ntpath
import os
import re
from collections.abc import Iterable, Sequence
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
RUN_WEIGHT_FILES = (ARCHIVED_WEIGHT_FILE, RUN_WEIGHT_FILE)
CONFIG_FILE = "config.json"
METRICS_FILE = "metrics.json"
TRAINING_FILE = "training.json"
"""The settings of a run of `elmo-train`."""
CHECKPOINT_FILE = "checkpoint.pt"
"""The state of a language model that is trained."""
# Files of ELMoForManyLangs
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
"""What can be a model, for errors."""

_CHECKPOINT_DATA = ".data-?????-of-?????"

PATTERNS = (
    *("*.json", "*.hdf5", "vocab*.txt", "vocab*.txt.gz", CARD_FILE),
    # An archive of AllenNLP and its vocabulary
    *(ARCHIVED_WEIGHT_FILE, "lm_tokens.txt", "non_padded_namespaces.txt"),
    *(TOKEN_EMBEDDER_FILE, ENCODER_FILE, CHARACTERS_FILE, WORDS_FILE),
    # A checkpoint of TensorFlow
    *("checkpoint", "*.index", f"*{_CHECKPOINT_DATA}"),
)
"""The names of a model's files, in whatever folder of it they are."""

# Hidden files, and what Windows reads as a drive, a stream or a device, or refuses in a name
_UNSAFE_NAME = re.compile(
    r"$|\.|.*[\x00-\x1f<>:\"|?*\\]|.*[. ]$"
    r"|(con|prn|aux|nul|con(in|out)\$|(com|lpt)[0-9\xb9\xb2\xb3]) *(\.|$)",
    re.IGNORECASE | re.DOTALL,
)


def is_model_file(path: str) -> bool:
    """Return whether a file in an archive may be of a model: not hidden, nor outside of it."""
    parts = path.split("/")
    is_inside = not any(map(_UNSAFE_NAME.match, parts))
    return is_inside and any(fnmatchcase(parts[-1], pattern) for pattern in PATTERNS)


def refuse_other_computers(path: str, place: str) -> None:
    """
    Raise a `ValueError` if the path that is named in `place`, a file of a stranger, is on another
    computer, where Windows would log in to look for it.
    """
    if path.replace("\\", "/").startswith(("//", "/??/")):
        raise ValueError(f"{place} is {path!r}, on another computer; name a file on this one")


def is_hub_module(folder: Path) -> bool:
    """Return whether a folder has a module of TensorFlow Hub."""
    return (folder / f"{HUB_WEIGHTS}.index").is_file()


def has_options(folder: Path) -> bool:
    """Return whether a folder has options.json or files whose names end like this."""
    return bool(_names(folder, f"*{OPTIONS_FILE}"))


def first_file(folder: Path, names: Iterable[str]) -> Path | None:
    """Return the first of these files that a folder has."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


def archive_in(folder: Path) -> Path | None:
    """Return model.tar.gz in a folder without another model, such as that of `elmo-import`."""
    is_only = not ((folder / CONFIG_FILE).is_file() or has_options(folder))
    return first_file(folder, [ARCHIVE_FILE] if is_only else [])


def find_options_file(folder: Path) -> Path | None:
    """Return options.json in a folder, or the only file whose name ends like this."""
    names = _names(folder, f"*{OPTIONS_FILE}")
    return first_file(folder, [OPTIONS_FILE]) or _only(folder, names, OPTIONS_FILE)


def weights_of(options: Path) -> Path | None:
    """
    Return the HDF5 weights for an options file. `NAME_options.json` goes with `NAME_weights.hdf5`.
    If the folder has no other options, it may also be weights.hdf5, model.hdf5 or its only HDF5
    file.
    """
    folder, is_only = options.parent, len(_names(options.parent, f"*{OPTIONS_FILE}")) < 2
    names = [options.name.removesuffix(OPTIONS_FILE) + WEIGHT_FILE]
    if is_only or options.name == OPTIONS_FILE:
        names += [WEIGHT_FILE, NLPL_WEIGHT_FILE]
    path = first_file(folder, names)
    if path is not None or not is_only:
        return path
    own = SOFTMAX_FILE, ADAGRAD_FILE, published_softmax("")
    others = [name for name in _names(folder, "*.hdf5") if not name.endswith(own)]
    return _only(folder, others, f"{WEIGHT_FILE} or {NLPL_WEIGHT_FILE}")


def published_softmax(weights: str) -> str:
    """Return what AllenNLP calls the softmax that it publishes beside weights."""
    return f"{weights.removesuffix(WEIGHT_FILE)}softmax_{WEIGHT_FILE}"


def options_of(weights: Path) -> Path | None:
    """Return the options that belong to HDF5 weights; the reverse of `weights_of`."""
    by_name = name_beside(str(weights))
    if by_name is not None and os.path.exists(by_name):
        return Path(by_name)
    options = find_options_file(weights.parent)
    return options if options is not None and weights_of(options) == weights else None


def name_beside(name: str) -> str | None:
    """Return the path or address of the weights of options, or the reverse, by the usual names."""
    if ntpath.basename(name) == NLPL_WEIGHT_FILE:
        return name.removesuffix(NLPL_WEIGHT_FILE) + OPTIONS_FILE
    for own, other in ((OPTIONS_FILE, WEIGHT_FILE), (WEIGHT_FILE, OPTIONS_FILE)):
        if name.endswith(own):
            return name.removesuffix(own) + other
    return None


def find_vocabulary_file(folder: Path) -> Path | None:
    """Return the vocabulary in a folder: vocab.txt, AllenNLP's, or the only other `vocab*.txt`."""
    allennlps = "vocabulary/lm_tokens.txt", "lm_tokens.txt"
    usual = VOCABULARY_FILE, f"{VOCABULARY_FILE}.gz", *allennlps
    others = [*_names(folder, "vocab*.txt"), *_names(folder, "vocab*.txt.gz")]
    return first_file(folder, (*usual, *(others if len(others) == 1 else ())))


def find_checkpoint_names(folder: Path) -> list[str]:
    """Return the prefixes of TensorFlow's checkpoints in a folder that have an index and data."""
    with_data = {name.rpartition(".data-")[0] for name in _names(folder, f"*{_CHECKPOINT_DATA}")}
    names = [name.removesuffix(".index") for name in _names(folder, "*.index")]
    return [name for name in names if name in with_data]


def is_training_run(folder: Path) -> bool:
    """Return whether a folder is AllenNLP's training run or archive, not a published model."""
    is_published = _names(folder, f"*{WEIGHT_FILE}") or (folder / NLPL_WEIGHT_FILE).exists()
    is_trained = first_file(folder, RUN_WEIGHT_FILES) is not None and not is_published
    return (folder / CONFIG_FILE).exists() and (is_trained or not has_options(folder))


def _only(folder: Path, names: Sequence[str], meant: str) -> Path | None:
    if len(names) > 1:
        raise ValueError(
            f"{folder}: it is not clear which of {', '.join(names)} is meant; name it {meant}, or "
            "give the paths of both files"
        )
    return folder / names[0] if names else None


def _names(folder: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in folder.glob(pattern) if not path.name.startswith("."))
