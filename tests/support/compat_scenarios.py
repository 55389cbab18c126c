"""
What AllenNLP is to do on every version, as a script: each scenario uses it as its users do.

`python compat_scenarios.py FOLDER [MODULE]` imports MODULE (the plugin) if given, runs every
scenario in FOLDER and prints, as JSON, "ok" or the error of each. `compat_test.py` runs it with the
plugin and without.
"""

import importlib
import io
import json
import sys
import tarfile
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch
from allennlp.common import Params
from allennlp.common import util as common_util
from allennlp.data import DatasetReader, Vocabulary
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.models import archival
from allennlp.nn.parallel import ddp_accelerator
from allennlp.training import Checkpointer, gradient_descent_trainer
from allennlp.training.learning_rate_schedulers import LearningRateScheduler
from allennlp.training.trainer import TrainerCheckpoint


def plateau_scheduler(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        scheduler = LearningRateScheduler.from_params(
            Params({"type": "reduce_on_plateau", "patience": 0, "factor": 0.5, "mode": "max"}),
            optimizer=optimizer,
        )
        for metric in (2.0, 1.0):
            scheduler.step(metric)
    assert optimizer.param_groups[0]["lr"] == 0.5


def training_state(folder: Path) -> None:
    numbers = {
        "best": np.float64(0.5),
        "loss": np.float32(0.25),
        "count": np.int64(3),
        "flag": np.bool_(True),
    }
    checkpointer = Checkpointer(str(folder))
    checkpointer.save_checkpoint(
        _TrainerState(
            TrainerCheckpoint(
                {"w": torch.ones(2)},
                {**numbers, "epochs_completed": 1, "batches_in_epoch_completed": 0},
            )
        )
    )
    restored = checkpointer.load_checkpoint()
    assert restored is not None
    for name, number in numbers.items():
        assert restored.trainer_state[name] == number


class _TrainerState:
    """The part of a trainer that the checkpointer reads."""

    def __init__(self, checkpoint: TrainerCheckpoint) -> None:
        self._checkpoint = checkpoint

    def get_checkpoint_state(self) -> TrainerCheckpoint:
        return self._checkpoint


def gradient_norm(folder: Path) -> None:
    for module in (gradient_descent_trainer, ddp_accelerator):
        dense = torch.nn.Parameter(torch.zeros(2))
        dense.grad = torch.full((2,), 2.0)
        table = torch.nn.Embedding(4, 1, sparse=True)
        table(torch.tensor([1, 1, 3])).sum().backward()
        # The gradients are [2, 2] and [0, 2, 0, 1].
        norm = module.clip_grad_norm_([dense, table.weight], 1.0)
        assert torch.allclose(norm, torch.tensor(13.0).sqrt()), norm
        assert torch.allclose(dense.grad, torch.full((2,), 2.0) / norm)
        clipped = table.weight.grad.to_dense().flatten()
        assert torch.allclose(clipped, torch.tensor([0.0, 2.0, 0.0, 1.0]) / norm)


def device_of_index(folder: Path) -> None:
    assert common_util.int_to_device(0) == torch.device("cuda", 0)
    assert common_util.int_to_device(-1) == torch.device("cpu")


def worker_lock(folder: Path) -> None:
    data_path = folder / "data.jsonl"
    data_path.write_text('{"text": "one two", "label": "1"}\n' * 3, encoding="utf-8")
    reader = DatasetReader.from_params(
        Params({"type": "text_classification_json", "tokenizer": {"type": "just_spaces"}})
    )
    # Workers that read instances, and workers that make batches.
    for max_instances_in_memory in (None, 2):
        loader = MultiProcessDataLoader(
            reader,
            str(data_path),
            batch_size=2,
            num_workers=1,
            start_method="spawn",
            max_instances_in_memory=max_instances_in_memory,
            quiet=True,
        )
        loader.index_with(Vocabulary(counter={"labels": {"1": 3}}))
        assert [len(batch["label"]) for batch in loader] == [2, 1]


def archive_extraction(folder: Path) -> None:
    good = _write_archive(folder / "good.tar.gz", ["config.json", "vocabulary/tokens.txt"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with archival.extracted_archive(good) as extracted:
            assert Path(extracted, "vocabulary", "tokens.txt").read_text() == "content"
    assert not Path(extracted).exists()

    outside = folder / "outside.txt"
    bad = _write_archive(folder / "bad.tar.gz", ["config.json", str(outside)])
    try:
        with archival.extracted_archive(bad):
            pass
    except Exception:  # which one is tested elsewhere
        pass
    assert not outside.exists(), "an archive wrote outside of its folder"


def _write_archive(path: Path, names: list) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(b"content")
            archive.addfile(member, io.BytesIO(b"content"))
    return path


def autocast_warning(folder: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        with gradient_descent_trainer.amp.autocast(False):
            pass
    assert not caught, caught[0].message


def sparse_warning(folder: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        torch.sparse_coo_tensor(torch.zeros(1, 1, dtype=torch.long), torch.ones(1), (2,))
    assert not caught, caught[0].message


SCENARIOS = (
    sparse_warning,
    autocast_warning,
    plateau_scheduler,
    training_state,
    gradient_norm,
    device_of_index,
    worker_lock,
    archive_extraction,
)


def main(folder: Path, *modules: str) -> None:
    for module in modules:
        importlib.import_module(module)
    outcomes = {}
    for scenario in SCENARIOS:
        scenario_folder = folder / scenario.__name__
        scenario_folder.mkdir(parents=True)
        try:
            scenario(scenario_folder)
            outcomes[scenario.__name__] = "ok"
        except Exception as error:
            traceback.print_exc()
            outcomes[scenario.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
