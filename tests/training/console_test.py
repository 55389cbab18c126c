import logging
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
from allennlp.common import Params
from allennlp.common import logging as allennlp_logging

from allennlp_elmo_plugin.training import console

LANGUAGE_MODEL = {"model": {"type": "bidirectional_lm"}}


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """The root logger, whose handlers come back after the test."""
    for name in ("ALLENNLP_DEBUG", "ALLENNLP_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    params = logging.getLogger("allennlp.common.params")
    monkeypatch.setattr(params, "disabled", False)
    yield root
    for handler in root.handlers:
        if isinstance(handler, logging.FileHandler):
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def log() -> None:
    logging.getLogger("allennlp.common.params").info("a setting")
    logging.getLogger("allennlp.training.gradient_descent_trainer").info("Epoch 0/1")
    logging.getLogger("allennlp.training.gradient_descent_trainer").info(
        "Worker 0 memory usage: 1G"
    )
    logging.getLogger("allennlp.common.util").warning("a warning")
    logging.getLogger("allennlp.common.util").error("an error")
    logging.getLogger("my_package").info("Worker of the user")


@pytest.mark.parametrize(
    "config, wanted, is_quiet",
    [
        (LANGUAGE_MODEL, "", True),
        ({"dataset_reader": {"type": "truncated_bptt_lm"}, "model": "from_archive"}, "", True),
        (LANGUAGE_MODEL, "ALLENNLP_LOG_LEVEL", False),
        ({"model": {"type": "simple_tagger"}, "dataset_reader": "sequence_tagging"}, "", False),
        ({}, "", False),
    ],
)
@pytest.mark.parametrize("is_worker", [False, True])
def test_config_is_in_the_log_alone(
    config: Dict[str, Any],
    wanted: str,
    is_quiet: bool,
    is_worker: bool,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if wanted:
        monkeypatch.setenv(wanted, "INFO")
    Params(config).to_file(str(tmp_path / "config.json"))
    if is_worker:  # It imports the plugin when its logging is ready.
        console._prepare_global_logging(tmp_path, 0, 2)
        console.make_worker_quiet()
    else:
        allennlp_logging.prepare_global_logging(tmp_path)
    log()
    output = capsys.readouterr()
    shown = ["Epoch 0/1"] if is_quiet else ["a setting", "Epoch 0/1", "Worker 0 memory usage: 1G"]
    shown += ["a warning", "Worker of the user"]
    assert [line.rsplit(" - ")[-1] for line in output.out.splitlines()] == shown
    assert output.err.endswith("an error\n") and output.err.count("\n") == 1
    name = "out_worker0.log" if is_worker else "out.log"
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert "a setting" in text and len(text.splitlines()) == 6


def test_before_the_log_of_the_run(root: logging.Logger, capsys: Any) -> None:
    root.handlers[:] = [logging.StreamHandler()]
    root.setLevel(logging.INFO)
    with console.quiet_console():
        log()
    assert capsys.readouterr().err.splitlines() == [
        "Epoch 0/1",
        "a warning",
        "an error",
        "Worker of the user",
    ]
    log()
    assert "a setting" in capsys.readouterr().err
