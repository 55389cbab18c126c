"""One training and evaluation of a task model."""

import json
import os
import platform
import re
import time
from pathlib import Path
from typing import Any, Dict, List

import torch
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.util import prepare_environment
from allennlp.modules.scalar_mix import ScalarMix

from allennlp_elmo_plugin.benchmark.cached_bilm import Vectors, keep_vectors
from allennlp_elmo_plugin.benchmark.task import TASKS
from allennlp_elmo_plugin.evaluation.official_evaluator import PREFIX, OfficialEvaluator
from allennlp_elmo_plugin.evaluation.scorers import BracketingScorer
from allennlp_elmo_plugin.version import __version__


def run(kind: str, params: Params, folder: Path, vectors: Vectors) -> Dict[str, Any]:
    """
    Train and evaluate a task model in a new folder, and return its result: official `scores` and
    `allennlp_metrics` on the test set, `curve` (the validation metric after each epoch, in
    percent), `layer_weights` of each scalar mix after the softmax, and more.
    """
    start = time.monotonic()
    prepare_environment(params)
    loop: Any = TrainModel.from_params(params=params, serialization_dir=str(folder), local_rank=0)
    model: Any = loop.model
    keep_vectors(model, vectors)
    if hasattr(model, "_evalb_score"):
        model._evalb_score = BracketingScorer()
    loop.run()  # leaves the best weights in the model
    evaluator = OfficialEvaluator(kind, cuda_device=loop.trainer.cuda_device)
    metrics = evaluator(model, loop.evaluation_data_loader)
    metrics = {name: value for name, value in metrics.items() if isinstance(value, (int, float))}
    scores = {name[len(PREFIX) :]: metrics[name] for name in metrics if name.startswith(PREFIX)}
    task = TASKS[kind]
    curve: List[float] = []
    while (file := folder / f"metrics_epoch_{len(curve)}.json").exists():
        epoch = json.loads(file.read_text(encoding="utf-8"))
        curve.append(100 * epoch[f"validation_{task.allennlp_metric}"])
    mixes = [module for module in model.modules() if isinstance(module, ScalarMix)]
    return {
        "score": scores[task.score_name],
        "scores": scores,
        "allennlp_metrics": {
            name: value for name, value in metrics.items() if not name.startswith(PREFIX)
        },
        "curve": curve,
        "layer_weights": [
            torch.softmax(torch.cat(list(mix.scalar_parameters)), dim=0).tolist() for mix in mixes
        ],
        "epochs": len(curve),
        "stopped_early": loop.trainer._metric_tracker.should_stop_early(),
        "trained_parameters": sum(
            parameter.numel() for parameter in model.parameters() if parameter.requires_grad
        ),
        "seconds": time.monotonic() - start,
        "machine": _machine(loop.trainer.cuda_device),
    }


def _machine(device: torch.device) -> str:
    """Describe what the times and last digits depend on."""
    cpus = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", cpus.read_text()) if cpus.exists() else None
    name = found[1] if found else platform.processor() or platform.machine()
    if device.type == "cuda":
        name += f" with {torch.cuda.get_device_name(device)}"
    return f"{name}, {os.cpu_count()} cores; torch {torch.__version__}, this package {__version__}"
