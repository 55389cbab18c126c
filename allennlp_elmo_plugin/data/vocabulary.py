"""A language model's vocabulary in AllenNLP: the namespace `lm_tokens`, with bilm-tf's ids."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Optional, Union

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import namespace_match
from allennlp.data.vocabulary import (
    DEFAULT_NON_PADDED_NAMESPACES,
    DEFAULT_OOV_TOKEN,
    DEFAULT_PADDING_TOKEN,
    NAMESPACE_PADDING_FILE,
    Vocabulary,
)

from allennlp_elmo_plugin.bilm.vocabulary import (
    SPECIAL_WORDS,
    read_vocabulary_file,
    write_vocabulary_file,
)
from allennlp_elmo_plugin.registration import override_registered

LM_NAMESPACE = "lm_tokens"

VOCABULARY_FOLDER = "vocabulary"
"""The folder of AllenNLP's form of a vocabulary in the output of a command."""

_HINT = (
    "make it with `allennlp elmo-vocab` and set in the configuration: "
    '"vocabulary": {"type": "from_files", "directory": OUTPUT}'
)
_IS_PADDED = (
    f"the namespace {LM_NAMESPACE} is padded; its ids would not be those of a language model: add "
    f"a line {LM_NAMESPACE} to {NAMESPACE_PADDING_FILE} in its folder, or {_HINT}"
)


def check_vocabulary(vocab: Vocabulary) -> int:
    """
    Return the number of words in the vocabulary of a language model. Raise a `ConfigurationError`
    if it can't be one: `lm_tokens` is missing or padded, lacks `<S>`, `</S>` or `<UNK>`, has an
    empty word, or a word that is there twice.
    """
    if LM_NAMESPACE not in vocab.get_namespaces():
        raise ConfigurationError(f"The vocabulary has no namespace {LM_NAMESPACE}; {_HINT}")
    ids = vocab.get_token_to_index_vocabulary(LM_NAMESPACE)
    words = vocab.get_index_to_token_vocabulary(LM_NAMESPACE)
    if ids.get(vocab._padding_token) == 0:
        raise ConfigurationError(f"The vocabulary: {_IS_PADDED}")
    twice = [word for index, word in words.items() if ids[word] != index]
    missing = [word for word in SPECIAL_WORDS if word not in ids]
    problem = f"lacks the special words {', '.join(missing)}" if missing else ""
    if twice:
        problem = f"has the word {twice[0]!r} twice"
    elif "" in ids:
        problem = f"has an empty line {ids[''] + 1}"
    if problem:
        raise ConfigurationError(
            f"The vocabulary's {LM_NAMESPACE}.txt {problem}; mend that, or {_HINT}"
        )
    return len(ids)


@override_registered(Vocabulary, "from_files", constructor="from_files")
class FolderVocabulary(Vocabulary):
    """
    AllenNLP's vocabulary "from_files", whose `directory` may also be the folder that `elmo-vocab`
    wrote. It makes a plain `Vocabulary`.
    """

    @classmethod
    def from_files(
        cls,
        directory: Union[str, "os.PathLike[str]"],
        padding_token: Optional[str] = DEFAULT_PADDING_TOKEN,
        oov_token: Optional[str] = DEFAULT_OOV_TOKEN,
    ) -> Vocabulary:
        name = os.fspath(directory)
        inner = os.path.join(name, VOCABULARY_FOLDER)
        if not os.path.exists(os.path.join(name, NAMESPACE_PADDING_FILE)) and os.path.isdir(inner):
            name = inner
        return Vocabulary.from_files(name, padding_token, oov_token)


def read_vocabulary_folder(directory: Union[str, "os.PathLike[str]"], source: str) -> list[str]:
    """
    Return the language model's words in the folder of an AllenNLP `Vocabulary`, in the order of
    their ids, as `read_vocabulary_file` does. `source` is the name of the folder in errors.
    """
    path = Path(directory, f"{LM_NAMESPACE}.txt")
    padding_path = Path(directory, NAMESPACE_PADDING_FILE)
    if not path.is_file() or not padding_path.is_file():
        raise ValueError(f"{source}: has no {path.name} with {padding_path.name}; {_HINT}")
    patterns = padding_path.read_text(encoding="utf-8", errors="replace").split()
    if not any(namespace_match(pattern, LM_NAMESPACE) for pattern in patterns):
        raise ValueError(f"{source}: {_IS_PADDED}")
    return read_vocabulary_file(path, f"{source}/{path.name}")


def write_vocabulary_folder(
    directory: Union[str, "os.PathLike[str]"], words: Sequence[str]
) -> None:
    """Write a folder for AllenNLP's `Vocabulary.from_files`; the ids are the indices in `words`."""
    for word in words:
        if "@@NEWLINE@@" in word:
            raise ValueError(f"{word!r} can't be in a vocabulary of AllenNLP")
    Path(directory).mkdir(parents=True, exist_ok=True)
    write_vocabulary_file(
        Path(directory, NAMESPACE_PADDING_FILE), [*DEFAULT_NON_PADDED_NAMESPACES, LM_NAMESPACE]
    )
    write_vocabulary_file(Path(directory, f"{LM_NAMESPACE}.txt"), words)
