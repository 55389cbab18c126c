"""A language model's vocabulary in AllenNLP: the namespace `lm_tokens` with bilm-tf's ids."""

import os
import tarfile
import zipfile
from pathlib import Path
from typing import Optional, Union

from allennlp.common.checks import ConfigurationError
from allennlp.data.vocabulary import (
    DEFAULT_NON_PADDED_NAMESPACES,
    DEFAULT_OOV_TOKEN,
    DEFAULT_PADDING_TOKEN,
    Vocabulary,
)

from allennlp_elmo_plugin.plugin.registration import configuration_errors, override_registered
from allennlp_elmo_plugin.pretrained.file_names import find_vocabulary_file
from allennlp_elmo_plugin.text.vocabulary import (
    HINT,
    IS_PADDED,
    LM_NAMESPACE,
    NON_PADDED_FILE,
    SPECIAL_WORDS,
    VOCABULARY_FOLDER,
    read_vocabulary_file,
)


def check_vocabulary(vocab: Vocabulary) -> int:
    """
    Return the number of words in the vocabulary of a language model. Raise a `ConfigurationError`
    unless it has the special words, and each word once.
    """
    if LM_NAMESPACE not in vocab.get_namespaces():
        raise ConfigurationError(f"The vocabulary has no namespace {LM_NAMESPACE}; {HINT}")
    ids = vocab.get_token_to_index_vocabulary(LM_NAMESPACE)
    words = vocab.get_index_to_token_vocabulary(LM_NAMESPACE)
    if ids.get(vocab._padding_token) == 0:
        raise ConfigurationError(f"The vocabulary: {IS_PADDED}")
    twice = [word for index, word in words.items() if ids[word] != index]
    missing = [word for word in SPECIAL_WORDS if word not in ids]
    if twice or missing:
        problem = f"lacks the special words {', '.join(missing)}"
        if twice:
            problem = f"has the word {twice[0]!r} twice"
        raise ConfigurationError(
            f"The vocabulary's {LM_NAMESPACE}.txt {problem}; mend that, or {HINT}"
        )
    return len(ids)


@override_registered(Vocabulary, "from_files", constructor="from_files")
class FolderVocabulary(Vocabulary):
    """
    AllenNLP's vocabulary "from_files", whose `directory` may also be the folder that `elmo-vocab`
    wrote, or a vocab.txt of bilm-tf or a folder with one. It makes a plain `Vocabulary`.
    """

    @classmethod
    def from_files(
        cls,
        directory: Union[str, "os.PathLike[str]"],
        padding_token: Optional[str] = DEFAULT_PADDING_TOKEN,
        oov_token: Optional[str] = DEFAULT_OOV_TOKEN,
    ) -> Vocabulary:
        path = Path(directory)
        if not os.fspath(directory):
            raise ConfigurationError(f'The vocabulary\'s "directory" is empty; {HINT}')
        if (path / VOCABULARY_FOLDER).is_dir() and not (path / NON_PADDED_FILE).exists():
            directory = path = path / VOCABULARY_FOLDER
        is_archive = path.is_file() and (tarfile.is_tarfile(path) or zipfile.is_zipfile(path))
        if is_archive or not path.exists() or (path / NON_PADDED_FILE).exists():
            return Vocabulary.from_files(directory, padding_token, oov_token)
        file = path if path.is_file() else find_vocabulary_file(path)
        if file is None:
            raise ConfigurationError(f"{path}: has no vocabulary; {HINT}")
        with configuration_errors():
            words = read_vocabulary_file(file)
        non_padded = [LM_NAMESPACE, *DEFAULT_NON_PADDED_NAMESPACES]
        return Vocabulary(non_padded_namespaces=non_padded, tokens_to_add={LM_NAMESPACE: words})
