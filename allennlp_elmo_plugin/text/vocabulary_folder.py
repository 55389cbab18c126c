"""The folder of a language model's vocabulary in AllenNLP's form, read and written without it."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from allennlp_elmo_plugin.text.vocabulary_file import read_vocabulary_file, write_vocabulary_file

LM_NAMESPACE = "lm_tokens"

VOCABULARY_FOLDER = "vocabulary"
"""The folder of AllenNLP's form of a vocabulary in the output of a command."""

NON_PADDED_FILE = "non_padded_namespaces.txt"

HINT = (
    "make it with `allennlp elmo-vocab` and set in the configuration: "
    '"vocabulary": {"type": "from_files", "directory": OUTPUT}'
)
IS_PADDED = (
    f"the namespace {LM_NAMESPACE} is padded; its ids would not be those of a language model: add "
    f"a line {LM_NAMESPACE} to {NON_PADDED_FILE} in its folder, or {HINT}"
)


def read_vocabulary_folder(directory: str | os.PathLike[str], source: str) -> list[str]:
    """
    Return the language model's words in the folder of an AllenNLP `Vocabulary`, in the order of
    their ids, as `read_vocabulary_file` does. `source` is the name of the folder in errors.
    """
    path = Path(directory, f"{LM_NAMESPACE}.txt")
    padding_path = Path(directory, NON_PADDED_FILE)
    if not path.is_file() or not padding_path.is_file():
        raise ValueError(f"{source}: has no {path.name} with {padding_path.name}; {HINT}")
    patterns = padding_path.read_text(encoding="utf-8", errors="replace").split()
    if not any(fnmatchcase(LM_NAMESPACE, pattern) for pattern in patterns):
        raise ValueError(f"{source}: {IS_PADDED}")
    return read_vocabulary_file(path, f"{source}/{path.name}")


def write_vocabulary_folder(directory: str | os.PathLike[str], words: Sequence[str]) -> None:
    """Write a folder for AllenNLP's `Vocabulary.from_files`; the ids are the indices in `words`."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    # As in AllenNLP, namespaces of labels have no padding either.
    write_vocabulary_file(Path(directory, NON_PADDED_FILE), ("*tags", "*labels", LM_NAMESPACE))
    write_vocabulary_file(Path(directory, f"{LM_NAMESPACE}.txt"), words)
