import shutil

import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.plugin.components.vocabulary import check_vocabulary
from allennlp_elmo_plugin.text.vocabulary import read_vocabulary_folder, write_vocabulary_folder

SPECIAL = ["<S>", "</S>", "<UNK>"]


def test_every_token_keeps_its_id(tmp_path):
    """Ids are line numbers, whatever else AllenNLP takes for a line end or white space."""
    words = [*SPECIAL, "\x85", "a\u2028b", "\xa0", "\u3000x", "x\x1c", "\x1d", "\x00"]
    words += ["\ufeff", "@@UNKNOWN@@", "@@PADDING@@", "#", "東京"]
    for _ in range(2):
        write_vocabulary_folder(tmp_path / "made" / "vocabulary", words)
    inner = str(tmp_path / "made" / "vocabulary")
    saved = str(tmp_path / "saved_in_training")
    Vocabulary.from_files(inner).save_to_files(saved)
    archives = [shutil.make_archive(saved, kind, saved) for kind in ("gztar", "zip")]
    # The first is the output of `elmo-vocab`.
    for folder in (str(tmp_path / "made"), inner, saved, *archives):
        vocab = Vocabulary.from_params(Params({"type": "from_files", "directory": folder}))
        assert type(vocab) is Vocabulary and check_vocabulary(vocab) == len(words)
        assert vocab.get_index_to_token_vocabulary("lm_tokens") == dict(enumerate(words))
        assert [vocab.get_token_index(word, "lm_tokens") for word in words] == [*range(len(words))]
        assert vocab.get_vocab_size("tokens") == 2 and vocab.get_vocab_size("labels") == 0
    for folder in (inner, saved):
        assert read_vocabulary_folder(folder, "folder") == words
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="empty: has no vocabulary; make it with"):
        Vocabulary.from_params(Params({"type": "from_files", "directory": str(tmp_path / "empty")}))
    with pytest.raises(ConfigurationError, match='"directory" is empty; make it with'):
        Vocabulary.from_params(Params({"type": "from_files", "directory": ""}))
    with pytest.raises(FileNotFoundError, match="none not found"):
        Vocabulary.from_params(Params({"type": "from_files", "directory": str(tmp_path / "none")}))


@pytest.mark.parametrize(
    "content, expected",
    [
        ("<S>\n</S>\n<UNK>\nthe\nof\n", ["the", "of"]),
        ("<S>\t9\n</S>\t9\n<UNK>\t0\nthe\t5\n", ["the"]),
        ("the\nof\n", "<S>, </S>, <UNK> are missing; a vocabulary .* starts with the lines <S>"),
    ],
)
def test_hand_made_files(tmp_path, content, expected):
    (tmp_path / "vocab.txt").write_text(content, encoding="utf-8", newline="")
    for path in (tmp_path, tmp_path / "vocab.txt"):
        params = Params({"type": "from_files", "directory": str(path)})
        if isinstance(expected, str):
            with pytest.raises(ConfigurationError, match=f"vocab.txt[:,] .*{expected}"):
                Vocabulary.from_params(params)
            continue
        vocab = Vocabulary.from_params(params)
        assert check_vocabulary(vocab) == 3 + len(expected)
        words = dict(enumerate([*SPECIAL, *expected]))
        assert vocab.get_index_to_token_vocabulary("lm_tokens") == words
        vocab.save_to_files(str(tmp_path / "run"))
        assert vocab._token_to_index == Vocabulary.from_files(tmp_path / "run")._token_to_index


@pytest.mark.parametrize(
    "lines, namespaces, message",
    [
        ([*SPECIAL[:2], "a"], "lm_tokens", "lacks the special words <UNK>"),
        ([], "lm_tokens", "lacks the special words <S>, </S>, <UNK>"),
        ([*SPECIAL, "a", "b", "a"], "lm_tokens", "has the word 'a' twice; .*elmo-vocab"),
        (["@@UNKNOWN@@", *SPECIAL], "*labels", "is padded.*non_padded_namespaces.txt"),
        (None, "*labels", "no namespace lm_tokens.*elmo-vocab"),
    ],
)
def test_vocabularies_that_are_refused(tmp_path, lines, namespaces, message):
    (tmp_path / "non_padded_namespaces.txt").write_text(f"{namespaces}\n")
    if lines is not None:
        (tmp_path / "lm_tokens.txt").write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(ConfigurationError, match=message):
        check_vocabulary(Vocabulary.from_files(tmp_path))
