import json
import math
import re
import struct
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from allennlp.common.checks import ConfigurationError
from tensorboardX import SummaryWriter

from allennlp_elmo_plugin.plots.training_curves import draw_curves, read_run

LINE = (
    "{},596 - INFO - tqdm - epoch {}/2:  10%|3         | {}/100 [{}<1:40,  "
    "1.13it/s, {} words/s, perplexity: {}, forward_perplexity: {}, backward_perplexity: 4.0, "
    "batch_loss: 4.9497, loss: 5.7746]\n"
)


def line(
    epoch: int, done: int, elapsed: str, rate: str, perplexity: float, start: str = "06:00:00"
) -> str:
    """A line of a process that began with the epoch at `start`."""
    hours, minutes, seconds = map(int, f"0:{elapsed}".split(":")[-3:])
    began = datetime.fromisoformat(f"2026-11-23 {start}")
    now = began + timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return LINE.format(now, epoch, done, elapsed, rate, perplexity, 2 * perplexity)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of two epochs of 100 batches, of which one is complete."""
    folder = tmp_path / "my_model"
    folder.mkdir()
    metrics = {"training_perplexity": 50.0, "validation_perplexity": 40.0}
    metrics["initial_validation_perplexity"] = 900.0
    metrics["validation_forward_perplexity"] = math.nan
    (folder / "metrics_epoch_0.json").write_text(json.dumps(metrics), encoding="utf-8")
    lines = [
        "2026-11-23 06:47:11,596 - INFO - root - epoch 1/2: not a bar\n",
        line(1, 50, "00:10", "1,000", math.exp(4)),
        line(1, 100, "00:20", "1,500", math.exp(3)),
        "... - INFO - tqdm - epoch 1/2, validation: 100%|#| 3/3 [00:01<00:00, perplexity: 40.0]\n",
        line(2, 50, "1:00:00", "10", 3.0),
        line(2, 90, "1:30:00", "10", 7.0),  # lost with a kill
        line(2, 80, "00:05", "400", 3.0, start="09:00:00"),
    ]
    (folder / "out.log").write_text("".join(lines), encoding="utf-8")
    return folder


def test_what_is_read_of_a_run(folder: Path) -> None:
    run = read_run(str(folder))
    assert run.name.endswith("/my_model")
    curves = run.curves
    # Between the lines, where the bar has the mean of the epoch so far.
    assert curves["training_perplexity"] == [
        (0.25, pytest.approx(math.exp(4))),
        (0.75, pytest.approx(math.exp(2))),
        (1.25, pytest.approx(3.0)),
        (1.65, pytest.approx(3.0)),
    ]
    assert curves["training_forward_perplexity"][0] == (0.25, pytest.approx(2 * math.exp(4)))
    assert curves["words_per_second"] == [(0.25, 1000), (0.75, 2000), (1.25, 10), (1.65, 400)]
    assert curves["validation_perplexity"] == [(0, 900.0), (1, 40.0)]
    assert "learning_rate" not in curves and "gradient_norm" not in curves


def test_a_first_epoch_whose_length_is_not_known(folder: Path) -> None:
    expected = read_run(str(folder)).curves
    log = (folder / "out.log").read_text(encoding="utf-8")
    log = re.sub(r"(epoch 1/2: ) 10%.* (\d+)/100 \[([\d:]+)<1:40", r"\1\2it [\3", log)
    assert "epoch 1/2: 50it [00:10,  1.13it/s, 1,000 words/s" in log
    (folder / "out.log").write_text(log, encoding="utf-8")
    curves = read_run(str(folder)).curves
    for name in ("training_perplexity", "words_per_second"):
        assert curves[name] == expected[name]


def test_a_recovered_process_counts_its_own_words(folder: Path) -> None:
    lines = [
        line(1, 50, "00:10", "1,000", 3.0),
        line(1, 80, "00:12", "100", 3.0, start="08:00:00"),  # later in its time than the first
    ]
    (folder / "out.log").write_text("".join(lines), encoding="utf-8")
    assert read_run(str(folder)).curves["words_per_second"] == [(0.25, 1000), (0.65, 100)]


def test_a_short_rest_of_an_epoch_is_not_a_point(folder: Path) -> None:
    """The perplexity of one batch, and words/s of a second that is not whole, say nothing."""
    lines = [
        line(1, 48, "00:10", "100", 3.0),
        line(1, 96, "00:20", "100", 3.0),
        line(1, 100, "00:20", "120", 4.0),
    ]
    (folder / "out.log").write_text("".join(lines), encoding="utf-8")
    curves = read_run(str(folder)).curves
    mean = math.exp((100 * math.log(4) - 48 * math.log(3)) / 52)
    assert curves["training_perplexity"] == [(0.24, 3.0), (0.74, pytest.approx(mean))]
    assert curves["words_per_second"] == [(0.24, 100), (0.74, 140)]


def test_logs_of_distributed_training(folder: Path) -> None:
    expected = read_run(str(folder)).curves
    lines = (folder / "out.log").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "out.log").rename(folder / "out_worker0.log")
    assert read_run(str(folder)).curves == expected
    # Recovered with two processes
    (folder / "out.log").write_text("".join(lines[:-1]), encoding="utf-8")
    (folder / "out_worker0.log").write_text(f"0 | {lines[-1]}", encoding="utf-8")
    assert read_run(str(folder)).curves == expected


def test_a_run_that_diverged(folder: Path) -> None:
    lines = [line(1, 50, "00:10", "100", 9.0), line(1, 80, "00:20", "100", 1e250)]
    (folder / "out.log").write_text("".join(lines).replace("e+250", "0" * 250), encoding="utf-8")
    values = (math.nan, 30.0, math.inf, 0.0, 40.0)
    for epoch, value in enumerate(values):
        path = folder / f"metrics_epoch_{epoch}.json"
        path.write_text(json.dumps({"validation_perplexity": value}), encoding="utf-8")
    run = read_run(str(folder))
    assert run.curves["training_perplexity"] == [(0.25, 9.0)]
    assert run.curves["validation_perplexity"] == [(2, 30.0), (5, 40.0)]
    pytest.importorskip("matplotlib")
    draw_curves([run], str(folder / "curves.svg"))
    title = "perplexity 30.0 on the validation text after 2 epochs"
    assert title in (folder / "curves.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "content", ['{"validation_perp', "[1]", "null", '{"validation_perplexity": null}', ""]
)
def test_metrics_that_cannot_be_read(folder: Path, content: str) -> None:
    (folder / "metrics_epoch_best.json").write_text("is not one of them", encoding="utf-8")
    read_run(str(folder))
    (folder / "metrics_epoch_1.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="metrics_epoch_1.json: is not a file of metrics"):
        read_run(str(folder))


def test_logs_of_tensorboard_that_are_damaged(folder: Path) -> None:
    expected = read_run(str(folder)).curves
    path = folder / "log" / "train" / "events.out.tfevents.1"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff" * 100)  # a length beyond the file
    assert read_run(str(folder)).curves == expected
    path.write_bytes(struct.pack("<Q", 20) + b"\xff" * 40)
    with pytest.raises(ConfigurationError, match="events.out.tfevents.1: is damaged before byte"):
        read_run(str(folder))


def test_without_a_log_training_has_the_mean_of_each_epoch(folder: Path) -> None:
    (folder / "out.log").unlink()
    assert read_run(str(folder)).curves["training_perplexity"] == [(0.5, 50.0)]


@pytest.mark.parametrize("has_log", [True, False])
def test_what_tensorboard_logs(folder: Path, has_log: bool) -> None:
    log = folder / "log" / "train"
    for name, batches, rate, epoch in (("1", (20, 80, 100), 0.5, 1), ("2", (110, 130), 0.25, None)):
        writer = SummaryWriter(str(log), filename_suffix=name)
        for batch in batches:
            writer.add_scalar("gradient_norm", 2.0 * rate, batch + 1)
            writer.add_scalar("learning_rate/frozen", 0.0, batch + 1)
            writer.add_scalar("learning_rate/weight", rate, batch + 1)
        if epoch:
            writer.add_scalar("train/loss", 3.0, epoch)
            # Of a process that was killed later than its last checkpoint.
            writer.add_scalar("gradient_norm", 9.0, 111)
            writer.add_scalar("gradient_norm", 9.0, 121)
        writer.close()
        time.sleep(1.1)  # The name of a file has the second.
    if not has_log:
        (folder / "out.log").unlink()
    last = max(log.iterdir())
    last.write_bytes(last.read_bytes() + b"\x18")  # cut off while the next record was written
    curves = read_run(str(folder)).curves
    assert curves["learning_rate"] == [(0.2, 0.5), (0.8, 0.5), (1, 0.5), (1.1, 0.25), (1.3, 0.25)]
    assert curves["gradient_norm"] == [(0.2, 1), (0.8, 1), (1, 1), (1.1, 0.5), (1.3, 0.5)]


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_figures(folder: Path, ending: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs = [read_run(str(folder)), read_run(str(folder))._replace(name="other & <another> $_$")]
    path = tmp_path / f"curves.{ending}"
    draw_curves(runs, str(path))
    start = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[ending]
    content = path.read_bytes()
    assert content.startswith(start)
    if ending == "svg":
        text = content.decode()
        for expected in ("Perplexity", "Speed of training, words/s", "Best: ", "validation 40.0"):
            assert f"<!-- {expected}" in text or expected in text
        assert "Learning rate" not in text
        draw_curves(runs, str(path))
        assert path.read_bytes() == content  # the same picture each time
    assert list(tmp_path.glob(".*")) == []


def test_labels_are_not_over_the_title_nor_ticks_over_each_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    metrics = {"validation_perplexity": 400.0}
    for epoch, value in enumerate((500.0, 300.0)):
        metrics.update(validation_forward_perplexity=value, validation_backward_perplexity=value)
        path = folder / f"metrics_epoch_{epoch}.json"
        path.write_text(json.dumps(metrics), encoding="utf-8")
    first = read_run(str(folder))
    second = first._replace(
        name="b",
        curves={
            name: curve[:1] if "validation" in name else curve
            for name, curve in first.curves.items()
        },
    )
    drawn = []

    def keep(figure: Any, path: str, **_: Any) -> None:
        drawn.append(figure)
        Path(path).touch()

    monkeypatch.setattr(figures.Figure, "savefig", keep)
    draw_curves([first, second], str(folder / "curves.png"))
    drawn[0].canvas.draw()
    for axes in drawn[0].axes:
        texts = axes.findobj(pytest.importorskip("matplotlib.text").Text)
        (title,) = (text for text in texts if text.get_text() == axes.get_title("left"))
        boxes = [text.get_window_extent() for text in (title, *axes.texts)]
        assert not any(map(boxes[0].overlaps, boxes[1:]))
        ticks = [text.get_window_extent() for text in axes.get_xticklabels()]
        assert not any(map(type(ticks[0]).overlaps, ticks, ticks[1:]))


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such folder"):
        read_run(str(tmp_path / "missing"))
    with pytest.raises(ConfigurationError, match="is not the folder of a language model's"):
        read_run(str(tmp_path))
    (tmp_path / "metrics_epoch_0.json").write_text('{"validation_accuracy": 1}', encoding="utf-8")
    with pytest.raises(ConfigurationError, match="there is no perplexity in metrics_epoch_N.json"):
        read_run(str(tmp_path))


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_run_without_a_finite_perplexity(value: float, tmp_path: Path) -> None:
    metrics = {"training_perplexity": value, "validation_perplexity": value}
    (tmp_path / "metrics_epoch_0.json").write_text(json.dumps(metrics), encoding="utf-8")
    log = line(1, 50, "00:10", "100", value).replace(" 4.0,", f" {value},")
    (tmp_path / "out.log").write_text(log, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="the training diverged: .*smaller learning rate"):
        read_run(str(tmp_path))
