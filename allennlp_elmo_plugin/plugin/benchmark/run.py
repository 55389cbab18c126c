"""One training and evaluation of a task model."""

import json
import os
import platform
import re
import time
from pathlib import Path
from typing import Any

import torch
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import prepare_environment

from allennlp_elmo_plugin import __version__
from allennlp_elmo_plugin.elmo.scalar_mix import ScalarMix
from allennlp_elmo_plugin.plugin.benchmark.cached_bilm import Vectors, keep_vectors
from allennlp_elmo_plugin.plugin.benchmark.task import TASKS
from allennlp_elmo_plugin.plugin.evaluation.official_evaluator import (
    PREFIX,
    OfficialEvaluator,
    count_brackets,
)


def run(kind: str, params: Params, folder: Path, vectors: Vectors) -> dict[str, Any]:
    """
    Train and evaluate a task model in a new folder. Return the results that the file of the run
    contains, such as `curve`, the validation metric after each epoch in percent.
    """
    start = time.monotonic()
    prepare_environment(params)
    params.pop("evaluation", None)  # for `allennlp evaluate`
    loop: Any = TrainModel.from_params(params=params, serialization_dir=str(folder), local_rank=0)
    model: Any = loop.model
    keep_vectors(model, vectors)
    count_brackets(model)
    task, trainer = TASKS[kind], loop.trainer
    if task.allennlp_metric not in model.get_metrics():
        raise ConfigurationError(
            f"{kind}: the model has no metric {task.allennlp_metric!r}; of a crf_tagger, set "
            '"calculate_span_f1": true and "label_encoding"'
        )
    loop.run()  # leaves the best weights in the model
    evaluate = OfficialEvaluator(kind, cuda_device=trainer.cuda_device)
    metrics = evaluate(model, loop.evaluation_data_loader)
    scores = {name[len(PREFIX) :]: metrics.pop(name) for name in [*metrics] if PREFIX in name}
    curve: list[float] = []
    while (file := folder / f"metrics_epoch_{len(curve)}.json").exists():
        epoch = json.loads(file.read_text(encoding="utf-8"))
        curve.append(100 * epoch[f"validation_{task.allennlp_metric}"])
    mixes = [module for module in model.modules() if isinstance(module, ScalarMix)]
    trained = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
    return {
        "score": scores[task.score_name],
        "scores": scores,
        "allennlp_metrics": metrics,
        "curve": curve,
        "layer_weights": [
            torch.softmax(torch.cat(list(mix.scalar_parameters)), dim=0).tolist() for mix in mixes
        ],
        "epochs": len(curve),
        "stopped_early": trainer._metric_tracker.should_stop_early(),
        "trained_parameters": sum(trained),
        "seconds": time.monotonic() - start,
        "machine": _machine(trainer.cuda_device),
    }


def _machine(device: torch.device) -> str:
    """Describe the hardware and software, on which times and last digits depend."""
    cpus = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.+)", cpus.read_text("utf-8")) if cpus.exists() else None
    name = model[1] if model else platform.processor() or platform.machine()
    if device.type == "cuda":
        name += f" with {torch.cuda.get_device_name(device)}"
    return f"{name}, {os.cpu_count()} cores; torch {torch.__version__}, this package {__version__}"
