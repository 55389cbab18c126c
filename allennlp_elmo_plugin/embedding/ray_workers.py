"""`elmo --ray-workers`: the parts of a text embedded by Ray's workers, on any machines."""

import functools
import importlib
import itertools
import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from typing import Any

from allennlp_elmo_plugin.embedding.corpus_embedder import CorpusEmbedder
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.progress import progress_bar, progress_of_command
from allennlp_elmo_plugin.text.lines import open_lines

_embedder = functools.cache(lambda settings: ElmoEmbedder(**json.loads(settings)))


def embed_parts(
    text: str,
    output: str,
    *,
    model: dict[str, Any],
    options: dict[str, Any],
    workers: int,
    gpus: float = 0,
    packages: Sequence[str] = (),
    debug: bool = False,
) -> None:
    """
    Write the parts of a text that are missing. `model` are arguments of `ElmoEmbedder`, `options`
    of `CorpusEmbedder`. The workers import `packages`. If a worker dies, another one continues.
    """
    try:
        import ray
    except ImportError as error:
        raise ValueError(f"--ray-workers needs Ray: pip install ray ({error})") from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Otherwise Ray asks for consent.
    settings = json.dumps({**model, "cuda_device": 0 if gpus else -1})
    # Ray prints the deaths of workers to standard output.
    with open(os.devnull, "w") as null, redirect_stdout(sys.stderr if debug else null):
        level = logging.INFO if debug else logging.ERROR
        quiet: Any = {"log_to_driver": debug, "logging_level": level, "include_dashboard": False}
        ray.init(ignore_reinit_error=True, **quiet)
        if ray.cluster_resources().get("GPU", 0) < gpus:  # Ray would wait forever.
            raise ValueError(f"a worker needs {gpus:g} GPU, which Ray doesn't have; see ray status")
        task = ray.remote(_embed_shard).options(
            num_cpus=0 if gpus else 1, num_gpus=gpus, max_retries=5
        )
        arguments = os.getcwd(), list(packages), settings, options, text, output
        tasks = (task.remote(shard, *arguments) for shard in range(options["num_shards"]))
        with progress_bar(total=options["num_shards"], unit=" shards", desc="embedding") as bar:
            running = list(itertools.islice(tasks, workers))
            while running:
                (done,), running = ray.wait(running)
                try:
                    ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from error
                except ray.exceptions.RayError as error:
                    raise ValueError(
                        f"Ray failed, perhaps for lack of memory ({str(error).splitlines()[0]}); "
                        "`--debug` shows what it says. The same command resumes"
                    ) from error
                bar.update()
                running += itertools.islice(tasks, 1)


def _embed_shard(
    shard: int,
    folder: str,
    packages: Sequence[str],
    settings: str,
    options: dict[str, Any],
    text: str,
    output: str,
) -> None:
    """Write the parts of a shard in a process of Ray, which loads the model once."""
    with suppress(FileNotFoundError):  # Absolute paths don't need this folder.
        os.chdir(folder)
    for package in packages:
        importlib.import_module(package)
    corpus_embedder = CorpusEmbedder(_embedder(settings), shard_index=shard, **options)
    with open_lines(text) as lines, progress_of_command(quiet=True):
        corpus_embedder.write_parts(lines, output)
