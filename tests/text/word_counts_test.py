"""`elmo_vocab_test.py` has the files that are written."""

from allennlp_elmo_plugin.text.word_counts import count_words, select_words


def test_words_are_counted_and_chosen_by_their_counts(tmp_path, caplog):
    files = []
    for name in "abcd":
        files.append(tmp_path / name)
        files[-1].write_text("b, b, a <S>\nb, c </S> !!!MAXTERMID\n", encoding="utf-8")
    counts, n_sentences = count_words(files, "strict")
    assert f"{files[2]}, ...: is this text tokenised?" in caplog.text
    assert n_sentences == 8 and counts["b,"] == 12 and counts["</S>"] == 4
    special, unknown = [("<S>", 12), ("</S>", 12)], "<UNK>"
    chosen = select_words(counts, n_sentences)
    assert chosen == [*special, (unknown, 4), ("b,", 12), ("a", 4), ("c", 4)]
    assert "Left out of the vocabulary: ['!!!MAXTERMID']" in caplog.text
    chosen = select_words(counts, n_sentences, max_size=5)
    assert chosen == [*special, (unknown, 8), ("b,", 12), ("a", 4)]
    assert select_words(counts, n_sentences, min_count=5) == [*special, (unknown, 12), ("b,", 12)]
