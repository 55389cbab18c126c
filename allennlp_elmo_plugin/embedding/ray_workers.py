"""Embed the shards of a text in Ray's workers, on one machine or the machines of a cluster."""

import logging
import os
import signal
import sys
import threading
from collections import defaultdict
from contextlib import closing, contextmanager, redirect_stdout, suppress
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import import_module_and_submodules

from allennlp_elmo_plugin.embedding.corpus_embedder import CorpusEmbedder
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.files.text_lines import open_lines
from allennlp_elmo_plugin.progress import progress_bar, progress_of_command

logger = logging.getLogger(__name__)

_MAX_DEATHS = 5
"""So many workers may die during one shard."""


def embed_shards(
    text: str,
    parts: Sequence[str],
    *,
    model: Dict[str, Any],
    options: Dict[str, Any],
    workers: int,
    gpus: float = 0,
    packages: Sequence[str] = (),
    debug: bool = False,
) -> None:
    """
    Embed the shards of a text. Those that exist are resumed. When a worker dies, another one
    resumes its shard.

    # Parameters

    text : `str`
        Path of the text. All paths must be the same on all machines; they are relative to the
        current folder.
    parts : `Sequence[str]`
        The output of each shard.
    model : `Dict[str, Any]`
        Arguments of `ElmoEmbedder`, except `cuda_device`.
    options : `Dict[str, Any]`
        Arguments of `CorpusEmbedder`, except `shard_index`.
    workers : `int`
        Number of processes. If Ray has no room for all of them, the others do the work.
    gpus : `float`, optional (default = `0`)
        The part of a GPU that each worker gets. A worker without a GPU gets a core.
    packages : `Sequence[str]`, optional (default = `()`)
        Packages to import in the workers.
    debug : `bool`, optional (default = `False`)
        Whether to print what Ray and the workers log.

    # Raises

    `ConfigurationError`
        Ray is missing, no machine has the GPU or core for a worker, or a worker died too often.
    `Exception`
        The error of a worker.
    """
    import_ray()
    model = {**model, "cuda_device": 0 if gpus else -1}
    resources = {"num_cpus": 0 if gpus else 1, "num_gpus": gpus}
    # Ray prints the deaths of workers to standard output.
    with (
        open(os.devnull, "w") as null,
        redirect_stdout(sys.stderr if debug else null),
        _ray_started(debug),
    ):
        _check_resources(resources)
        pool = _Pool(resources, (os.getcwd(), list(packages), text, model, options))
        with closing(pool), progress_bar(total=len(parts), unit=" shards", desc="embedding") as bar:
            for _ in pool.embed(parts, workers):
                bar.update()


def import_ray() -> Any:
    """Return the module `ray`, or raise the error that tells how to install it."""
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ConfigurationError(
            f"--ray-workers needs Ray: pip install 'allennlp_elmo_plugin[ray]' ({error})"
        ) from error
    return ray


@contextmanager
def _ray_started(debug: bool) -> Iterator[None]:
    """Connect to the cluster of this machine or `RAY_ADDRESS`; without one, start Ray here."""
    ray = import_ray()
    if ray.is_initialized():
        yield
        return
    # Otherwise Ray asks for the consent to it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            include_dashboard=False,
            log_to_driver=debug,
            logging_level=logging.INFO if debug else logging.ERROR,
        )
        # Ray has replaced the handler by one without a message.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
        yield
    finally:
        ray.shutdown()


def _check_resources(resources: Dict[str, float]) -> None:
    """Refuse workers that no machine has room for: Ray would wait for such a machine forever."""
    nodes = [node["Resources"] for node in import_ray().nodes() if node["Alive"]]
    for name, key in (("CPU", "num_cpus"), ("GPU", "num_gpus")):
        found = max((node.get(name, 0) for node in nodes), default=0)
        if found < resources[key]:
            raise ConfigurationError(
                f"a worker needs {resources[key]:g} {name}, but no machine that Ray has found has "
                f"more than {found:g}; see `ray status`"
            )


class _Pool:
    """Workers, each of which gets the next shard when it has started, and when it is done."""

    def __init__(self, resources: Dict[str, float], arguments: Any) -> None:
        ray = import_ray()
        self._actor = ray.remote(_Worker).options(**resources, scheduling_strategy="SPREAD")
        self._arguments = ray.put(arguments)
        self._running: Dict[Any, Tuple[Any, Optional[int]]] = {}
        """By the result to come, the worker and its shard; none while it loads the model."""

    def embed(self, parts: Sequence[str], n_workers: int) -> Iterator[int]:
        """Embed the shards, and yield the number of each when it is complete."""
        ray = import_ray()
        shards = list(range(len(parts)))[::-1]
        n_left = len(shards)
        deaths: Dict[Optional[int], int] = defaultdict(int)
        for _ in range(min(n_workers, n_left)):
            self._start()
        while n_left:
            (result,), _ = ray.wait(list(self._running))
            worker, shard = self._running.pop(result)
            try:
                _get(result)
            except ray.exceptions.RayActorError as error:
                ray.kill(worker)  # if it is only out of reach
                deaths[shard] += 1
                if deaths[shard] == _MAX_DEATHS:
                    raise _death(shard) from error
                if shard is not None:
                    logger.warning("A worker died at shard %d; another one resumes it", shard)
                    shards.append(shard)
                self._start()
                continue
            if shard is not None:
                n_left -= 1
                yield shard
            if shards:
                shard = shards.pop()
                result = worker.embed.remote(shard, parts[shard])
                self._running[result] = worker, shard

    def _start(self) -> None:
        worker = self._actor.remote()
        self._running[worker.start.remote(self._arguments)] = worker, None

    def close(self) -> None:
        for worker, _ in self._running.values():
            import_ray().kill(worker)
        self._running.clear()


def _get(result: Any) -> None:
    """Wait for a result, and raise the error of the worker, if there was one, as it was there."""
    ray = import_ray()
    try:
        ray.get(result)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayActorError:
        raise
    except ray.exceptions.RayError as error:
        raise ConfigurationError(f"Ray failed: {str(error).splitlines()[0]}") from error


def _death(shard: Optional[int]) -> ConfigurationError:
    place = "while they loaded the model" if shard is None else f"at shard {shard}"
    return ConfigurationError(
        f"{_MAX_DEATHS} workers died {place}, perhaps for lack of memory; `--debug` shows what "
        "Ray says. The same command resumes"
    )


class _Worker:
    """A process that loads the model once and embeds shards."""

    _embedder: Any = None

    def start(self, arguments: Any) -> None:
        """
        Load the model.

        # Parameters

        arguments : `Tuple`
            The folder in which the command was called, the packages to import, the path of the
            text, and the arguments of `ElmoEmbedder` and `CorpusEmbedder`.
        """
        folder, packages, self._text, model, self._options = arguments
        with suppress(FileNotFoundError):  # Absolute paths don't need it.
            os.chdir(folder)
        for package in packages:
            import_module_and_submodules(package)
        self._embedder = ElmoEmbedder(**model)

    def embed(self, shard: int, path: str) -> None:
        """Embed a shard, or what is missing of it."""
        corpus_embedder = CorpusEmbedder(self._embedder, shard_index=shard, **self._options)
        with (
            open_lines(self._text, ConfigurationError) as lines,
            progress_of_command(quiet=True),  # Ray's logs need no bars.
        ):
            corpus_embedder.embed(lines, path, resume=True)
