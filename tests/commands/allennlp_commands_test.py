"""AllenNLP's own commands with a language model."""

import json
from pathlib import Path
from typing import Any

import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from tests.support.bilm_tf import OPTIONS
from tests.support.corpora import write_text


def test_find_lr_build_vocab_and_count_instances(run: Any) -> None:
    write_text(Path("train.txt"), seed=1, n_sentences=24)
    make_vocabulary("train.txt", "vocab")
    config = {
        "dataset_reader": {"type": "truncated_bptt_lm", "batch_size": 4, "num_steps": 5},
        "train_data_path": "train.txt",
        "vocabulary": {"type": "from_files", "directory": "vocab/vocabulary"},
        "model": {"type": "bidirectional_lm", "num_samples": 9, "options": OPTIONS["characters"]},
        "data_loader": {"type": "truncated_bptt"},
        "trainer": {"optimizer": {"type": "dense_sparse_adam"}},
    }
    Path("config.json").write_text(json.dumps(config), encoding="utf-8")
    # More batches than an epoch has, so that the text starts again
    run("find-lr config.json --num-batches 11 -s found")
    assert Path("found/lr-losses.png").stat().st_size > 1000
    assert "Success! Vocab saved" in run("build-vocab config.json vocab.tar.gz")
    built, made = map(Vocabulary.from_files, ("vocab.tar.gz", "vocab/vocabulary"))
    words = [each.get_index_to_token_vocabulary("lm_tokens") for each in (built, made)]
    assert words[0] == words[1]
    with pytest.raises(ConfigurationError, match="makes batches, not instances"):
        run("count-instances config.json")
