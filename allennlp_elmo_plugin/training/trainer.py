"""Trains a language model. A run that was stopped, or killed, resumes exactly."""

import itertools
import math
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from allennlp_elmo_plugin.arguments import check_above_zero, check_at_least, check_types
from allennlp_elmo_plugin.exits import Terminated, noted_signals
from allennlp_elmo_plugin.files.atomic import (
    LateErrorFile,
    PathLike,
    atomic_file,
    output_folder,
    write_text,
)
from allennlp_elmo_plugin.files.json_file import to_json
from allennlp_elmo_plugin.files.tensors import read_checkpoint
from allennlp_elmo_plugin.pretrained import file_names as names
from allennlp_elmo_plugin.pretrained.adagrad_file import write_adagrad_state
from allennlp_elmo_plugin.pretrained.language_model import PretrainedLanguageModel
from allennlp_elmo_plugin.pretrained.publish import PUBLISHED_FILES, write_published
from allennlp_elmo_plugin.progress import progress_bar
from allennlp_elmo_plugin.text.checks import check_held_out
from allennlp_elmo_plugin.text.corpus import read_text
from allennlp_elmo_plugin.text.vocabulary import write_vocabulary_file
from allennlp_elmo_plugin.training.evaluation import Metrics, evaluate
from allennlp_elmo_plugin.training.language_model import LanguageModel
from allennlp_elmo_plugin.training.memory import keep_memory_of_training
from allennlp_elmo_plugin.training.optimizer import OPTIMIZERS, clip_grad_norm_
from allennlp_elmo_plugin.training.processes import (
    average_dense_gradients,
    average_sparse_gradients,
    check_same,
    rank,
    sum_over_processes,
    world_size,
)
from allennlp_elmo_plugin.training.random_state import get_random_state, set_random_state
from allennlp_elmo_plugin.training.text_batches import Batch, TextBatches

SECONDS_BETWEEN_CHECKPOINTS = 600.0
WARMUP_STEPS = 300
BATCHES_BETWEEN_CHECKS = 100
_SAVED = (
    *("n_batches", "n_updates", "epochs"),
    *("_initial", "_batches_per_epoch", "_seconds_in_epoch"),
)


class Trainer:
    """
    Trains a `LanguageModel` on a text, and measures it on held-out text (read with
    `drop_last=False`) after each epoch. `folder`, which must exist, then has the model of the best
    epoch in the files that `elmo-export` writes, and `adagrad.hdf5`; `metrics_epoch_N.json`; and
    `checkpoint.pt`, with which `resume` continues. SIGINT and SIGTERM save a checkpoint after the
    current batch, and end training. In distributed training, each process makes a `Trainer`, and
    the first one writes the files.

    # Parameters

    num_epochs, patience : `int`
        How many epochs at most, and after how many without a better one to end.
    optimizer : `str`, optional (default = `"adagrad"`)
        "adagrad" as in bilm-tf, or "adam", whose learning rate rises for `warmup_steps` updates, by
        default 300 and at most a tenth of all, then falls to 0. `OPTIMIZERS` has their default
        learning rates.
    grad_norm : `float`, optional (default = `10.0`)
        The norm to which larger gradients are scaled.
    num_gradient_accumulation_steps : `int`, optional (default = `1`)
        How many batches an update is made for, by the mean of their gradients.
    validate_first : `bool`, optional (default = `False`)
        Validate before the first update, too.
    save_every_num_batches : `int`, optional (default = `None`)
        Save a checkpoint after so many batches, besides that of every ten minutes.
    tensorboard : `bool`, optional (default = `False`)
        Write metrics, learning rate and norm of the gradients to `folder/log`, for TensorBoard.
    settings : `Mapping[str, Any]`, optional
        What the model card says about the training.
    """

    def __init__(
        self,
        model: LanguageModel,
        text: TextBatches,
        validation: TextBatches,
        folder: PathLike,
        *,
        num_epochs: int = 10,
        patience: int | None = None,
        optimizer: str = "adagrad",
        learning_rate: float | None = None,
        warmup_steps: int | None = None,
        grad_norm: float = 10.0,
        num_gradient_accumulation_steps: int = 1,
        validate_first: bool = False,
        save_every_num_batches: int | None = None,
        tensorboard: bool = False,
        device: torch.device | str = "cpu",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        check_types(Trainer.__init__, locals())
        counts = {"num_epochs": num_epochs, "patience": patience}
        counts["num_gradient_accumulation_steps"] = num_gradient_accumulation_steps
        check_at_least(1, **counts, save_every_num_batches=save_every_num_batches)
        check_at_least(0, warmup_steps=warmup_steps)
        check_above_zero(learning_rate=learning_rate, grad_norm=grad_norm)
        if torch.device(device).type == "mps":
            raise ValueError("device is mps, which lacks the float64 that training needs; use cpu")
        if tensorboard:
            _import_summary_writer()
        keep_memory_of_training()
        self.model, self.text, self.validation = model.to(device), text, validation
        text.device = validation.device = self.device = torch.device(device)
        self.folder, self.settings = Path(folder), dict(settings or {})
        self.num_epochs, self.patience, self.grad_norm = num_epochs, patience, grad_norm
        self.n_batches = self.n_updates = 0  # in all epochs
        self.epochs: list[Metrics] = []
        """The metrics of each epoch that is complete."""
        self._initial: Metrics = {}
        self._validate_first, self._tensorboard = validate_first, tensorboard
        self._n_accumulated = num_gradient_accumulation_steps
        self._save_every = save_every_num_batches
        self._log: Any = None  # of TensorBoard
        self._norm = torch.zeros(())
        self._batches_per_epoch = 0  # an estimate from before the first one
        self._seconds_in_epoch = 0.0
        self._signals: list[int] = []
        self._saved_at, self._n_saved = time.monotonic(), 0
        self._parent = os.getppid()
        sparse = {id(parameter) for parameter in model.sparse_gradient_parameters()}
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._sparse = [p for p in self._parameters if id(p) in sparse]
        self._dense = [p for p in self._parameters if id(p) not in sparse]
        if optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer is {optimizer!r}; use {' or '.join(OPTIMIZERS)}")
        self.kind = OPTIMIZERS[optimizer]
        self._rate = self.kind.learning_rate if learning_rate is None else learning_rate
        if warmup_steps is not None and not self.kind.warms_up:
            raise ValueError(f"warmup_steps is {warmup_steps}, but {optimizer} has no warm-up")
        self._warmup_steps = WARMUP_STEPS if warmup_steps is None else warmup_steps
        self.optimizer = self.kind.make(self._parameters, self._rate)

    @property
    def best(self) -> int:
        """The epoch (from 0) with the lowest perplexity of validation so far."""
        perplexities = [metrics["validation_perplexity"] for metrics in self.epochs]
        return perplexities.index(min(perplexities)) if perplexities else 0

    @property
    def is_done(self) -> bool:
        n_epochs = len(self.epochs)
        n_worse = n_epochs - 1 - self.best
        return n_epochs >= self.num_epochs or bool(self.patience and n_worse >= self.patience)

    def train(self) -> list[Metrics]:
        """Train to the end; return the metrics of each epoch."""
        if self.n_batches == 0:
            self._batches_per_epoch = len(self.text)
            if rank() == 0:
                held_out, text = (
                    read_text(each.files, "replace") for each in (self.validation, self.text)
                )
                check_held_out(self.validation.name, held_out, text)
            if world_size() > 1:
                texts = self.text, self.validation
                digests = [[*text.state_dict()["digest"].values()] for text in texts]
                check_same("The vocabulary or the text", digests)
                for parameter in self._parameters:
                    dist.broadcast(parameter.detach(), 0)
                torch.manual_seed(torch.initial_seed() + rank())
        if self._tensorboard and rank() == 0:
            writer = _import_summary_writer()
            self._log = writer(str(self.folder / "log"), purge_step=self.n_batches + 1)
        with noted_signals(self._signals, is_worker=world_size() > 1):
            if self._validate_first and self.n_batches == 0:
                metrics = evaluate(self.model, self.validation)
                self._initial = {f"initial_validation_{k}": v for k, v in metrics.items()}
                self._write_log("validation", metrics)
                _print(f"before training: validation perplexity {metrics['perplexity']:,.2f}")
            while not self.is_done:
                self._train_epoch()
        return self.epochs

    def _train_epoch(self) -> None:
        self.model.train()
        title, n = f"epoch {len(self.epochs) + 1}/{self.num_epochs}", self.n_batches
        later = (self.num_epochs - len(self.epochs) - 1) * self._batches_per_epoch
        # of the whole run, and so its time left
        counts = {"initial": n, "total": n + len(self.text) + later}
        with progress_bar(desc=title, **counts, unit="batch", disable=rank() > 0) as bar:
            started = time.monotonic()
            batches = iter(self.text)
            while group := list(itertools.islice(batches, self._n_accumulated)):
                self.step(*group)
                bar.update(len(group))
                now = time.monotonic()
                self._seconds_in_epoch, started = self._seconds_in_epoch + now - started, now
                if self.n_batches % BATCHES_BETWEEN_CHECKS < len(group):
                    perplexity = self._check()
                    bar.set_postfix_str(f"perplexity {perplexity:,.1f}")
                    rate, norm = self.optimizer.param_groups[0]["lr"], float(self._norm)
                    values = {"perplexity": perplexity, "learning_rate": rate, "grad_norm": norm}
                    self._write_log("training", values)
                self._save_or_end(now)
        self._check()
        metrics = {f"training_{k}": v for k, v in self.model.get_metrics(reset=True).items()}
        speed = self.model.n_predicted_words / max(self._seconds_in_epoch, 1e-9)
        of_validation = evaluate(self.model, self.validation)
        self._write_log("validation", of_validation)
        metrics.update({f"validation_{name}": value for name, value in of_validation.items()})
        metrics.update(self._initial, training_seconds=self._seconds_in_epoch)
        self._initial, self._seconds_in_epoch = {}, 0.0
        self.epochs.append(metrics)
        is_best = self.best == len(self.epochs) - 1
        _print(
            f"{title}: training perplexity {metrics['training_perplexity']:,.2f}, validation "
            f"{metrics['validation_perplexity']:,.2f}{' (best)' * is_best}, {speed:,.0f} words/s"
        )
        if rank() == 0:
            # Before the checkpoint: after a kill in between, this epoch's end is computed again.
            vocabulary_file = self.folder / names.VOCABULARY_FILE
            if not vocabulary_file.exists():
                write_vocabulary_file(vocabulary_file, list(self.text.words or ()))
            if is_best:
                self.write_best()
            path = self.folder / f"metrics_epoch_{len(self.epochs) - 1}.json"
            write_text(path, to_json(metrics))
        self.save()

    def _save_or_end(self, now: float) -> None:
        """Save if it is time. After a signal, save and end. All processes do the same."""
        n_unsaved, seconds = self.n_batches - self._n_saved, now - self._saved_at
        is_due = rank() == 0 and (
            seconds >= SECONDS_BETWEEN_CHECKPOINTS
            or (self._save_every is not None and n_unsaved >= self._save_every)
        )
        # A process whose torchrun was killed must not train on.
        ends = bool(self._signals) or (world_size() > 1 and os.getppid() != self._parent)
        is_due, ends = sum_over_processes(torch.tensor([is_due, ends], dtype=torch.int)).tolist()
        if is_due or ends:
            self.save()
        if ends:
            raise KeyboardInterrupt if signal.SIGINT in self._signals else Terminated

    def step(self, *batches: Batch) -> None:
        """Make one update for one or more batches."""
        if self.kind.warms_up:
            # As "linear_with_warmup" of AllenNLP, which counts updates from 1
            per_epoch = math.ceil(self._batches_per_epoch / self._n_accumulated)
            total, n = self.num_epochs * per_epoch, self.n_updates + 1
            rising = min(self._warmup_steps, total // 10)
            part = n / rising if n < rising else max(0, total - n) / max(1, total - rising)
            for group in self.optimizer.param_groups:
                group["lr"] = self._rate * part
        self.optimizer.zero_grad()
        for batch in batches:
            loss = self.model(**batch)["loss"]
            (loss / len(batches) if len(batches) > 1 else loss).backward()
        if world_size() > 1:
            average_dense_gradients(self._dense)
            average_sparse_gradients(self._sparse)
        self._norm = clip_grad_norm_(self._parameters, self.grad_norm)
        self.optimizer.step()
        self.n_batches += len(batches)
        self.n_updates += 1

    def _check(self) -> float:
        """Return the perplexity of this epoch so far, and raise an error if it isn't finite."""
        perplexity = self.model.get_metrics()["perplexity"]
        if not math.isfinite(perplexity):
            raise ValueError(
                f"the loss became infinite or NaN in the {BATCHES_BETWEEN_CHECKS} batches before "
                f"batch {self.n_batches}; nothing of them was saved. Lower the learning rate"
            )
        return perplexity

    def _write_log(self, part: str, values: Mapping[str, float]) -> None:
        if self._log is not None:
            for name, value in values.items():
                self._log.add_scalar(f"{part}/{name}", value, self.n_batches)
            self._log.flush()

    def write_best(self) -> None:
        """Write the model, which is the best so far, with its model card and Adagrad's sums."""
        metrics, model = self.epochs[-1], self.model
        title = self.folder.absolute().name
        parts = title, model.options, list(self.text.words or ()), model.bilm, model.softmax
        results = {**metrics, **{f"best_{name}": value for name, value in metrics.items()}}
        outputs = (*PUBLISHED_FILES, names.ADAGRAD_FILE)
        with output_folder(self.folder, outputs, force=True) as new:
            write_published(new, title, PretrainedLanguageModel(*parts), self.settings, results)
            if self.kind.has_sums:
                state, named = self.optimizer.state, model.named_parameters()
                sums = [(name, state[p]["sum"]) for name, p in named if p in state]
                write_adagrad_state(new / names.ADAGRAD_FILE, sums, self.n_updates)

    def save(self) -> None:
        """Write the checkpoint atomically. All processes must call this."""
        if self.model.training:
            self._check()
        own = {
            "model": self.model.training_state(),
            "text": self.text.state_dict(),
            "validation": self.validation.state_dict(),
            "random": get_random_state(self.device),
        }
        processes = [own] * world_size()
        if world_size() > 1:
            dist.all_gather_object(processes, own)
        if rank() == 0:
            content = {
                "parameters": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "processes": processes,
                **{name: getattr(self, name) for name in _SAVED},
            }
            with (
                atomic_file(self.folder / names.CHECKPOINT_FILE) as staged,
                LateErrorFile(staged) as file,
            ):
                torch.save(content, file)
        self._saved_at, self._n_saved = time.monotonic(), self.n_batches

    def resume(self) -> None:
        """Continue the run in the folder. Raise a `ValueError` if its text has changed."""
        path = self.folder / names.CHECKPOINT_FILE
        advice = "put back a copy of it, or start again in another folder"
        content = read_checkpoint(path, advice)
        if (n_processes := len(content["processes"])) != world_size():
            raise ValueError(
                f"{path} is of {n_processes} processes, not {world_size()}; use as many"
            )
        own = content["processes"][rank()]
        self.text.load_state_dict(own["text"])
        self.validation.load_state_dict(own["validation"])
        self.model.load_state_dict(content["parameters"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.model.load_training_state(own["model"])
        for name in _SAVED:
            setattr(self, name, content[name])
        self._n_saved = self.n_batches
        set_random_state(own["random"], self.device)
        if not self.is_done:
            epoch = f"epoch {len(self.epochs) + 1}/{self.num_epochs}"
            _print(f"resumed in {epoch}, after {self.n_batches:,} batches")


def _import_summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError("tensorboard needs TensorBoard: pip install tensorboard") from error
    return SummaryWriter


def _print(line: str) -> None:
    if rank() == 0:
        print(line, flush=True)
