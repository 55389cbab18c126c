from os import PathLike
from typing import Any, Dict, List, Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import dump_metrics
from allennlp.data import DataLoader, Instance
from allennlp.evaluation import Evaluator
from allennlp.evaluation.evaluator import SimpleEvaluator
from allennlp.evaluation.serializers.serializers import Serializer
from allennlp.models import Model

PREFIX = "official-"
_BATCH_SIZE = 32


@Evaluator.register("official")
class OfficialEvaluator(SimpleEvaluator):
    """
    Evaluation by the official scorer of a task, beside AllenNLP's own metrics: for `allennlp
    evaluate`, by `"evaluation": {"type": "official", "task": "srl"}` in a config, or with the
    archive of any config by `allennlp evaluate -o '{"evaluation": ...}'`.

    The data are read twice, once for each kind of metric.

    # Parameters

    task : `str`
        `sst5`, `ner`, `chunking`, `snli`, `srl`, `coref` or `squad`.
    batch_serializer, cuda_device, postprocessor_fn_name
        As of AllenNLP's `SimpleEvaluator`.

    # Raises

    `ConfigurationError`
        There is no such task, or the model and data are of another one.
    """

    def __init__(
        self,
        task: str,
        batch_serializer: Optional[Serializer] = None,
        cuda_device: Union[int, torch.device] = -1,
        postprocessor_fn_name: str = "make_output_human_readable",
    ) -> None:
        super().__init__(batch_serializer, cuda_device, postprocessor_fn_name)
        # It loads models of allennlp-models, which is slow.
        from allennlp_elmo_plugin.evaluation.instance_scorers import INSTANCE_SCORERS

        if task not in INSTANCE_SCORERS:
            raise ConfigurationError(
                f'"task" of the official evaluator is {task!r}; '
                f"it must be one of {list(INSTANCE_SCORERS)}"
            )
        self._task = task
        self._score = INSTANCE_SCORERS[task]

    def __call__(
        self,
        model: Model,
        data_loader: DataLoader,
        batch_weight_key: Optional[str] = None,
        metrics_output_file: Optional[Union[str, PathLike]] = None,
        predictions_output_file: Optional[Union[str, PathLike]] = None,
    ) -> Dict[str, Any]:
        """
        # Returns

        `Dict[str, Any]`
            AllenNLP's metrics, most of them fractions, and the official scores, in percent, under
            names that begin with `official-`.
        """
        metrics = super().__call__(
            model,
            data_loader,
            batch_weight_key or "",
            predictions_output_file=predictions_output_file,  # type: ignore[arg-type]
        )
        instances = list(data_loader.iter_instances())
        try:
            scores = self._score(instances, _predict(model, instances))
        except KeyError as error:
            raise ConfigurationError(
                f"the official evaluator is for the task {self._task!r}, but "
                f"there is no {error} in the instances or in what the model says of them"
            ) from error
        model.get_metrics(reset=True)  # of the predictions
        metrics.update({PREFIX + name: score for name, score in scores.items()})
        if metrics_output_file is not None:
            dump_metrics(str(metrics_output_file), metrics, log=True)
        return metrics


def _predict(model: Model, instances: List[Instance]) -> List[Dict[str, Any]]:
    model.eval()
    outputs: List[Dict[str, Any]] = []
    for start in range(0, len(instances), _BATCH_SIZE):
        batch: List[Any] = model.forward_on_instances(instances[start : start + _BATCH_SIZE])
        for output in batch:
            if "label" not in output and "label_logits" in output:  # ESIM names no label
                index = int(output["label_logits"].argmax())
                output["label"] = model.vocab.get_token_from_index(index, "labels")
            outputs.append(output)
    return outputs
