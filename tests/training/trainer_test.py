"""A step of training on a GPU, which is pretended where there is none."""

import math
import shutil
import signal

import pytest

from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.training import (
    LanguageModel,
    TextBatches,
    Trainer,
    sampled_softmax_warnings,
)
from allennlp_elmo_plugin.training import trainer as trainer_module
from allennlp_elmo_plugin.training.trainer import progress_bar as bars
from tests.support.corpora import write_text
from tests.support.pretend_gpu import count_waits, gpu_for_tests

LSTM = {"dim": 6, "projection_dim": 4, "n_layers": 2}
CHARACTERS = {"activation": "relu", "embedding": {"dim": 4}, "filters": [[1, 4], [2, 4]]}
CHARACTERS.update(max_characters_per_token=50, n_characters=261, n_highway=1)


def make_trainer(folder, device, num_samples, char_cnn, **training):
    write_text(folder / "text", 1, 100)
    words = [word for word, _ in make_vocabulary(folder / "text", folder / "vocabulary")]
    options = {"lstm": LSTM, "dropout": 0.2, **({"char_cnn": char_cnn} if char_cnn else {})}
    settings = {"batch_size": 3, "num_steps": 4, "max_characters_per_token": char_cnn and 50}
    text, validation = (
        TextBatches(folder / "text", words, drop_last=drop_last, **settings)
        for drop_last in (True, False)
    )
    model = LanguageModel(options, words, num_samples=num_samples)
    return Trainer(model, text, validation, folder, device=device, **training)


@pytest.mark.parametrize("num_samples", [0, 20])
@pytest.mark.parametrize("char_cnn", [CHARACTERS, None], ids=["characters", "words"])
def test_a_step_waits_for_the_gpu_only_for_its_counts(num_samples, char_cnn, tmp_path, monkeypatch):
    # The first words are counted, too.
    monkeypatch.setattr(sampled_softmax_warnings, "N_TOKENS", 1)
    with gpu_for_tests() as gpu:
        trainer = make_trainer(tmp_path, gpu, num_samples, char_cnn)
        trainer.model.train()
        batches = iter(trainer.text)
        trainer.step(next(batches))
        batch = next(batches)
        # One more is that of `clip_grad_norm_`, which the pretended GPU takes for one.
        assert count_waits(lambda: trainer.step(batch)) == 2
        batches.close()


@pytest.mark.parametrize("num_gradient_accumulation_steps", [1, 2])
def test_a_checkpoint_every_few_batches(num_gradient_accumulation_steps, tmp_path, monkeypatch):
    settings = {"num_gradient_accumulation_steps": num_gradient_accumulation_steps}
    trainer = make_trainer(tmp_path, "cpu", 0, None, **settings, save_every_num_batches=15)
    saved, save = [], Trainer.save
    monkeypatch.setattr(Trainer, "save", lambda self: saved.append(self.n_batches) or save(self))
    trainer.num_epochs = 1
    trainer.train()
    n = len(trainer.text)
    first = 15 if num_gradient_accumulation_steps == 1 else 16
    assert saved == [*range(first, n + 1, first), n]
    assert trainer.n_updates == math.ceil(n / num_gradient_accumulation_steps)


def test_tensorboard_has_the_curves(tmp_path, monkeypatch):
    """Those of a resumed run continue where its checkpoint was."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setattr(trainer_module, "BATCHES_BETWEEN_CHECKS", 10)
    settings = {"num_epochs": 1, "optimizer": "adam", "tensorboard": True}
    trainer = make_trainer(tmp_path, "cpu", 0, None, **settings, validate_first=True)
    trainer.train()
    n = len(trainer.text)
    shutil.rmtree(tmp_path / "vocabulary")
    longer = make_trainer(tmp_path, "cpu", 0, None, **{**settings, "num_epochs": 2})
    longer.resume()
    longer.train()
    log = reader.EventAccumulator(str(tmp_path / "log")).Reload()
    curves = {tag: [(e.step, e.value) for e in log.Scalars(tag)] for tag in log.Tags()["scalars"]}
    steps = [*range(10, 2 * n + 1, 10)]
    for name in ("perplexity", "learning_rate", "grad_norm"):
        assert [step for step, _ in curves[f"training/{name}"]] == steps
    epochs = [epoch["validation_perplexity"] for epoch in longer.epochs]
    expected = [longer.epochs[0]["initial_validation_perplexity"], *epochs]
    assert [step for step, _ in curves["validation/perplexity"]] == [0, n, 2 * n]
    assert [value for _, value in curves["validation/perplexity"]] == pytest.approx(expected)
    rates = [value for _, value in curves["training/learning_rate"]]
    assert max(rates) == pytest.approx(0.002, rel=0.3) and rates[-1] == 0.0


def test_the_bar_is_that_of_the_whole_run(tmp_path, capfd, monkeypatch):
    """A resumed one says where it is, and continues there."""
    trainer = make_trainer(tmp_path, "cpu", 0, CHARACTERS, num_epochs=3)
    n, step = len(trainer.text), Trainer.step

    def interrupted(self, batch):
        step(self, batch)
        if self.n_batches == n + 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "step", interrupted)
        trainer.train()
    assert f"epoch 1/3:  33%|###3      | {n}/{3 * n} [" in capfd.readouterr().err
    texts = trainer.text, trainer.validation
    resumed = Trainer(trainer.model, *texts, tmp_path, num_epochs=3)
    resumed.resume()
    assert capfd.readouterr().out == f"resumed in epoch 2/3, after {n + 2} batches\n"
    shown = []
    monkeypatch.setattr(
        trainer_module, "progress_bar", lambda **bar: shown.append(bar) or bars(**bar)
    )
    resumed.train()
    assert [(bar["initial"], bar["total"]) for bar in shown] == [(n + 2, 3 * n), (2 * n, 3 * n)]


def test_a_device_without_float64_is_refused(tmp_path):
    with pytest.raises(ValueError, match="device is mps, which lacks the float64"):
        make_trainer(tmp_path, "mps", 0, CHARACTERS)
