import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.data.vocabulary import (
    check_vocabulary,
    read_vocabulary_folder,
    write_vocabulary_folder,
)

SPECIAL = ["<S>", "</S>", "<UNK>"]


def test_every_token_keeps_its_id(tmp_path):
    """AllenNLP reads with its own ideas of lines and white space; ids must be line numbers."""
    words = [*SPECIAL, "\x85", "a\u2028b", "\xa0", "\u3000x", "x\x1c", "\x1d", "\x00"]
    words += ["\ufeff", "@@UNKNOWN@@", "@@PADDING@@", "#", "東京"]
    write_vocabulary_folder(tmp_path / "made", words)
    Vocabulary.from_files(tmp_path / "made").save_to_files(tmp_path / "saved_in_training")
    for folder in ("made", "saved_in_training"):
        vocab = Vocabulary.from_files(tmp_path / folder)
        assert check_vocabulary(vocab) == len(words)
        for index, word in enumerate(words):
            assert vocab.get_token_from_index(index, "lm_tokens") == word
            assert vocab.get_token_index(word, "lm_tokens") == index
        assert read_vocabulary_folder(tmp_path / folder, "folder") == words
    assert vocab.get_vocab_size("tokens") == 2 and vocab.get_vocab_size("labels") == 0
    with pytest.raises(ValueError, match="a@@NEWLINE@@"):
        write_vocabulary_folder(tmp_path, [*words, "a@@NEWLINE@@"])


def test_folders_that_are_not_a_language_models(tmp_path):
    for present in (None, "lm_tokens.txt"):
        if present:
            (tmp_path / present).touch()
        with pytest.raises(ValueError, match="^folder: has no lm_tokens.txt with non_padded"):
            read_vocabulary_folder(tmp_path, "folder")
    write_vocabulary_folder(tmp_path, SPECIAL)
    for namespaces in ("", "\n*tags\n", "*\x00", "tokens"):
        (tmp_path / "non_padded_namespaces.txt").write_text(namespaces)
        with pytest.raises(ValueError, match="^folder: the namespace lm_tokens is padded"):
            read_vocabulary_folder(tmp_path, "folder")
    (tmp_path / "non_padded_namespaces.txt").write_bytes(b"\xff\n*_tokens\r\n")
    assert read_vocabulary_folder(tmp_path, "folder") == SPECIAL
    (tmp_path / "lm_tokens.txt").write_bytes(b"<S>\n\xff\n")
    with pytest.raises(ValueError, match="^folder/lm_tokens.txt, line 2: byte 0xff is not UTF-8"):
        read_vocabulary_folder(tmp_path, "folder")


class TestCheckVocabulary:
    def make(self, tmp_path, lines, namespaces="lm_tokens\n"):
        (tmp_path / "non_padded_namespaces.txt").write_text(namespaces)
        (tmp_path / "lm_tokens.txt").write_text("".join(f"{line}\n" for line in lines))
        return Vocabulary.from_files(tmp_path)

    @pytest.mark.parametrize(
        "lines, message",
        [
            (["<S>", "</S>", "a"], "lacks the special words <UNK>"),
            ([], "lacks the special words <S>, </S>, <UNK>"),
            ([*SPECIAL, "a", "b", "a"], "has the word 'a' twice; .*elmo-vocab"),
            ([*SPECIAL, "a", "", "b"], "has an empty line 5"),
        ],
    )
    def test_bad_files(self, tmp_path, lines, message):
        with pytest.raises(ConfigurationError, match=message):
            check_vocabulary(self.make(tmp_path, lines))

    def test_padded(self, tmp_path):
        vocab = self.make(tmp_path, ["@@UNKNOWN@@", *SPECIAL], namespaces="*labels\n")
        with pytest.raises(ConfigurationError, match="is padded.*non_padded_namespaces.txt"):
            check_vocabulary(vocab)

    def test_other_vocabulary(self):
        with pytest.raises(ConfigurationError, match="no namespace lm_tokens.*elmo-vocab"):
            check_vocabulary(Vocabulary())


def test_the_folder_that_elmo_vocab_wrote(tmp_path):
    write_vocabulary_folder(tmp_path / "vocabulary", ["<S>", "</S>", "<UNK>", "one"])
    for folder in (tmp_path, tmp_path / "vocabulary"):
        params = Params({"type": "from_files", "directory": str(folder)})
        vocab = Vocabulary.from_params(params)
        assert type(vocab) is Vocabulary and vocab.get_token_index("one", "lm_tokens") == 3
    with pytest.raises(FileNotFoundError, match="none"):
        Vocabulary.from_params(Params({"type": "from_files", "directory": str(tmp_path / "none")}))
