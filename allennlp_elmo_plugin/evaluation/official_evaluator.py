"""The evaluator for official scores, in `allennlp evaluate` and in the benchmark."""

from os import PathLike
from typing import Any, Dict, Iterator, List, Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import dump_metrics
from allennlp.data import DataLoader, Instance, TensorDict, Vocabulary
from allennlp.data.data_loaders.data_collator import DataCollator
from allennlp.evaluation import Evaluator
from allennlp.evaluation.evaluator import SimpleEvaluator
from allennlp.evaluation.serializers.serializers import Serializer
from allennlp.models import Model

PREFIX = "official-"
# The key of a batch's instances, and what scorers read from a model's output.
_INSTANCES = "instances of the official evaluator"
_OUTPUTS = ("tags", "label", "clusters", "best_span_str", "trees")


@Evaluator.register("official")
class OfficialEvaluator(SimpleEvaluator):
    """
    Adds the scores of a task's official scorer to AllenNLP's metrics in `allennlp evaluate`: set
    `"evaluation": {"type": "official", "task": "srl"}` in a config, or use any archive with
    `allennlp evaluate -o '{"evaluation": ...}'`. Both count the same predictions.

    # Parameters

    task : `str`
        `sst5`, `ner`, `chunking`, `snli`, `srl`, `coref`, `squad`, `imdb` or `constituency`.
    batch_serializer, cuda_device, postprocessor_fn_name
        Those of AllenNLP's `SimpleEvaluator`.
    """

    def __init__(
        self,
        task: str,
        batch_serializer: Optional[Serializer] = None,
        cuda_device: Union[int, torch.device] = -1,
        postprocessor_fn_name: str = "make_output_human_readable",
    ) -> None:
        super().__init__(batch_serializer, cuda_device, postprocessor_fn_name)
        # This imports models of allennlp-models, which is slow.
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
        Return AllenNLP's metrics, most of them fractions, and the official scores, in percent,
        under names that begin with `official-`.
        """
        collator = data_loader.collate_fn  # type: ignore[attr-defined]
        batches = _BatchesWithInstances(data_loader)
        outputs: List[Dict[str, Any]] = []
        hook = model.register_forward_hook(
            lambda _, __, output: outputs.extend(_of_instances(model, output))
        )
        try:
            data_loader.collate_fn = _InstanceCollator(collator)  # type: ignore[attr-defined]
            metrics = super().__call__(
                model,
                batches,
                batch_weight_key or "",
                predictions_output_file=predictions_output_file,  # type: ignore[arg-type]
            )
        finally:
            data_loader.collate_fn = collator  # type: ignore[attr-defined]
            hook.remove()
        if not batches.instances:
            raise ConfigurationError("There is no instance in the data, so there is no score")
        try:
            scores = self._score(batches.instances, outputs or [{}] * len(batches.instances))
        except KeyError as error:
            raise ConfigurationError(
                f"the official evaluator is for the task {self._task!r}, but "
                f"there is no {error} in the instances or in what the model says of them"
            ) from error
        metrics.update({PREFIX + name: score for name, score in scores.items()})
        file = None if metrics_output_file is None else str(metrics_output_file)
        dump_metrics(file, metrics, log=True)
        return metrics


class _InstanceCollator(DataCollator):
    """Adds the instances to a batch, which also brings them out of a worker process."""

    def __init__(self, collator: DataCollator) -> None:
        self._collator = collator

    def __call__(self, instances: List[Instance]) -> Dict[str, Any]:
        return {**self._collator(instances), _INSTANCES: instances}


class _BatchesWithInstances(DataLoader):
    """A loader's batches; `instances` collects the instances of those that were read."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self.instances: List[Instance] = []

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[TensorDict]:
        for batch in self._loader:
            self.instances.extend(batch.pop(_INSTANCES))  # type: ignore[arg-type]
            yield batch

    def iter_instances(self) -> Iterator[Instance]:
        return self._loader.iter_instances()

    def index_with(self, vocab: Vocabulary) -> None:
        self._loader.index_with(vocab)

    def set_target_device(self, device: torch.device) -> None:
        self._loader.set_target_device(device)


def _of_instances(model: Model, output: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return a model's predictions for each instance of a batch."""
    readable: Dict[str, Any] = dict(model.make_output_human_readable(dict(output)))
    if "label" not in readable and "label_logits" in readable:  # ESIM outputs no label.
        readable["label"] = [
            model.vocab.get_token_from_index(index, "labels")
            for index in readable["label_logits"].argmax(-1).tolist()
        ]
    names = [name for name in _OUTPUTS if name in readable]
    return [dict(zip(names, values)) for values in zip(*(readable[name] for name in names))]
