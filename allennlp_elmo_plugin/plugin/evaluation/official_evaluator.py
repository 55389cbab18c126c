"""Official scores: the evaluator for `allennlp evaluate` and the benchmark, and a callback."""

import copy
from typing import Any

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import dump_metrics
from allennlp.data import Instance
from allennlp.evaluation import Evaluator
from allennlp.evaluation.evaluator import SimpleEvaluator
from allennlp.models import Model
from allennlp.training import TrainerCallback

PREFIX = "official-"
# For each task, the function of `scorers.py` and its arguments: values of an instance, and one of
# a model's output.
_SCORERS = {
    **dict.fromkeys(("sst5", "snli", "imdb"), ("class_accuracy", ["label"], "label")),
    **dict.fromkeys(("ner", "chunking"), ("conlleval", ["tags"], "tags")),
    "srl": ("srl_eval", ["verb_index", "gold_tags"], "tags"),
    "coref": ("coreference", ["clusters"], "clusters"),
    "squad": ("squad", ["answer_texts"], "best_span_str"),
    "constituency": ("evalb", ["gold_tree"], "trees"),
}


@Evaluator.register("official")
class OfficialEvaluator(SimpleEvaluator):
    """
    Adds the scores of a task's official scorer, in percent, to AllenNLP's metrics in `allennlp
    evaluate`. Set `"evaluation": {"type": "official", "task": "srl"}` in a config, or use any
    archive with `-o '{"evaluation": ...}'`. The names of official scores begin with `official-`.
    Tasks: `sst5`, `ner`, `chunking`, `snli`, `srl`, `coref`, `squad`, `imdb`, `constituency`.
    """

    def __init__(self, task: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if task not in _SCORERS:
            raise ConfigurationError(
                f'"task" of the official evaluator is {task!r}; it must be one of {list(_SCORERS)}'
            )
        self._task = task

    def __call__(self, model: Model, data_loader: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        metrics_file = kwargs.pop("metrics_output_file", None)
        instances: list[Instance] = []
        outputs: list[dict[str, Any]] = []
        collate = data_loader.collate_fn

        def collate_and_keep(batch: list[Instance]) -> Any:
            instances.extend(batch)
            return collate(batch)

        def read(module: Any, inputs: Any, output: dict[str, Any]) -> None:
            outputs.extend(_predictions(model, output))

        data_loader = copy.copy(data_loader)
        data_loader.collate_fn = collate_and_keep
        data_loader.num_workers = 0  # The instances of a worker don't reach this process.
        hook = model.register_forward_hook(read)
        metrics = super().__call__(model, data_loader, *args, **kwargs)
        hook.remove()
        scores = official_scores(self._task, instances, outputs)
        metrics.update({PREFIX + name: score for name, score in scores.items()})
        dump_metrics(metrics_file, metrics, log=True)
        return metrics


def official_scores(task: str, instances: list[Any], outputs: list[Any]) -> dict[str, float]:
    """Return the scores of a test set, from its instances and a model's outputs for them."""
    from allennlp_elmo_plugin.plugin.evaluation import scorers  # slow: it imports task models

    name, keys, output_key = _SCORERS[task]
    gold = [[_gold(instance, key) for instance in instances] for key in keys]
    return getattr(scorers, name)(*gold, [output[output_key] for output in outputs])


def _gold(instance: Any, key: str) -> Any:
    if key == "label":
        return instance[key].label
    return instance[key].labels if key == "tags" else instance["metadata"][key]


def _predictions(model: Model, output: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a model's predictions for each instance of a batch."""
    readable: Any = dict(model.make_output_human_readable(dict(output)))
    keys = {key for *_, key in _SCORERS.values()}.intersection(readable)
    return [dict(zip(keys, values)) for values in zip(*(readable[key] for key in keys))]


@TrainerCallback.register("official_brackets")
class OfficialBrackets(TrainerCallback):
    """
    Lets a `constituency_parser` count brackets as EVALB does, without that program. AllenNLP's
    `evalb_f1_measure` omits sentences with "(", which its reader makes of -LRB-.
    """

    def on_start(self, trainer: Any, is_primary: bool = True, **kwargs: Any) -> None:
        count_brackets(trainer.model)


def count_brackets(model: Any) -> None:
    """Replace the scorer of trees of a model that has one."""
    from allennlp_elmo_plugin.plugin.evaluation.scorers import BracketingScorer

    if getattr(model, "_evalb_score", None) is not None:
        model._evalb_score = BracketingScorer()
