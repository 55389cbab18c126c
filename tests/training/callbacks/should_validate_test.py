from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params

from allennlp_elmo_plugin.training.callbacks import ResumableShouldValidateCallback
from tests.support.training_runs import metrics, write_config


def test_the_best_weights_are_those_of_an_epoch_that_was_validated(
    data: Path, tmp_path: Path
) -> None:
    changes = {
        "train_data_path": str(data / "heldout.txt"),
        "trainer.num_epochs": 2,
        "trainer.checkpointer": {},
        "trainer.callbacks": [{"type": "should_validate_callback", "validation_interval": 2}],
    }
    run = tmp_path / "run"
    model = train_model(Params.from_file(write_config(tmp_path, data, changes)), str(run))
    found = metrics(run)
    assert found["best_epoch"] == 0 and found["epoch"] == 1
    validated = [metrics(run, f"metrics_epoch_{n}")["validation_perplexity"] for n in range(2)]
    assert validated[0] == validated[1]  # AllenNLP repeats those of the last validation
    best, first, second = (
        torch.load(run / f"{name}.th")["softmax.weight"]
        for name in ("best", "model_state_e1_b0", "model_state_e2_b0")
    )
    assert torch.equal(best, first) and not torch.equal(best, second)
    assert torch.equal(model.state_dict()["softmax.weight"], best)


@pytest.mark.parametrize("is_sharded", [False, True])
def test_shards_stay_as_they_are(is_sharded: bool, tmp_path: Path) -> None:
    """FairScale's, when their weights have become one file, which they can't load."""
    trainer = MagicMock(_best_model_filename=str(tmp_path / "best.th"))
    trainer._ddp_wrapped_model.is_sharded = is_sharded
    callback = ResumableShouldValidateCallback(str(tmp_path))
    callback.on_end(trainer, {"best_epoch": 0}, epoch=1)
    assert trainer._load_model_state.called != is_sharded
