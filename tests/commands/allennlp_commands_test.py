"""AllenNLP's own commands with a language model."""

from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from tests.support.training_runs import GRADIENT_DESCENT, write_config, write_data


def test_find_lr_build_vocab_and_count_instances(run):
    changes = {"train_data_path": "heldout.txt", "trainer": {**GRADIENT_DESCENT, "callbacks": []}}
    write_config(Path(), write_data(Path()), changes)
    # More batches than an epoch has, so that the text starts again
    run("find-lr config.json --num-batches 30 -s found")
    assert Path("found/lr-losses.png").stat().st_size > 1000
    assert "Success! Vocab saved" in run("build-vocab config.json vocab.tar.gz")
    built, written = map(Vocabulary.from_files, ("vocab.tar.gz", "vocabulary/vocabulary"))
    words = [vocab.get_index_to_token_vocabulary("lm_tokens") for vocab in (built, written)]
    assert words[0] == words[1]
    with pytest.raises(ConfigurationError, match="makes batches, not instances"):
        run("count-instances config.json")
