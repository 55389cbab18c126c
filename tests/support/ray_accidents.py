"""
Accidents to Ray's workers, which import this module by `--include-package`. They are controlled by
files in the folder of the command:

- `log`: each sentence that is written, with the process that writes it
- `kill`: the key of a sentence; the worker that is about to write it removes this file and is
  killed (SIGKILL)
- `slow`: the workers wait before each sentence
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from allennlp_elmo_plugin.embedding import corpus_embedder
from allennlp_elmo_plugin.embedding.layers_file import LayersFile


def _add(file: LayersFile, key: str, *arguments: Any) -> None:
    kill = Path("kill")
    if kill.exists() and kill.read_text() == key:
        kill.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if Path("slow").exists():
        time.sleep(0.003)
    with open("log", "a") as log:
        log.write(f"{key} {os.getpid()}\n")
    _add_unchanged(file, key, *arguments)


if os.path.basename(sys.argv[0]) == "default_worker.py":  # Ray's, not the command itself
    _add_unchanged = LayersFile.add
    LayersFile.add = _add  # type: ignore[method-assign]
    corpus_embedder._CHECKPOINT_SECONDS = 0
