"""A language model's vocabulary in AllenNLP: the namespace `lm_tokens`, with bilm-tf's ids."""

import os
from typing import Optional, Union

from allennlp.common.checks import ConfigurationError
from allennlp.data.vocabulary import DEFAULT_OOV_TOKEN, DEFAULT_PADDING_TOKEN, Vocabulary

from allennlp_elmo_plugin.plugin.registration import override_registered
from allennlp_elmo_plugin.text.vocabulary_file import SPECIAL_WORDS
from allennlp_elmo_plugin.text.vocabulary_folder import (
    HINT,
    IS_PADDED,
    LM_NAMESPACE,
    NON_PADDED_FILE,
    VOCABULARY_FOLDER,
)


def check_vocabulary(vocab: Vocabulary) -> int:
    """
    Return the number of words in the vocabulary of a language model. Raise a `ConfigurationError`
    if it can't be one: `lm_tokens` is missing or padded, lacks `<S>`, `</S>` or `<UNK>`, has an
    empty word, or a word that is there twice.
    """
    if LM_NAMESPACE not in vocab.get_namespaces():
        raise ConfigurationError(f"The vocabulary has no namespace {LM_NAMESPACE}; {HINT}")
    ids = vocab.get_token_to_index_vocabulary(LM_NAMESPACE)
    words = vocab.get_index_to_token_vocabulary(LM_NAMESPACE)
    if ids.get(vocab._padding_token) == 0:
        raise ConfigurationError(f"The vocabulary: {IS_PADDED}")
    twice = [word for index, word in words.items() if ids[word] != index]
    missing = [word for word in SPECIAL_WORDS if word not in ids]
    problem = f"lacks the special words {', '.join(missing)}" if missing else ""
    if twice:
        problem = f"has the word {twice[0]!r} twice"
    elif "" in ids:
        problem = f"has an empty line {ids[''] + 1}"
    if problem:
        raise ConfigurationError(
            f"The vocabulary's {LM_NAMESPACE}.txt {problem}; mend that, or {HINT}"
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
        if not os.path.exists(os.path.join(name, NON_PADDED_FILE)) and os.path.isdir(inner):
            name = inner
        return Vocabulary.from_files(name, padding_token, oov_token)
