"""
Accidents to Ray's workers, which import this module by `--include-package`. They are controlled by
files in the folder of the command:

- `log`: each part that is written, with the process that writes it
- `kill`: the number of a part; the worker that is about to write it removes this file and is killed
  (SIGKILL)
- `slow`: the workers wait before each part
"""

import os
import signal
import sys
import time
from pathlib import Path

from allennlp_elmo_plugin.embedding import corpus_embedder
from allennlp_elmo_plugin.embedding.parts import Part, PartsFolder

corpus_embedder.PART_WORDS = 500


def _write(folder: PartsFolder, number: int, part: Part) -> None:
    kill = Path("kill")
    if kill.exists() and int(kill.read_text()) == number:
        kill.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if Path("slow").exists():
        time.sleep(0.1)
    _write_unchanged(folder, number, part)
    with open("log", "a") as log:
        log.write(f"{number} {os.getpid()}\n")


if os.path.basename(sys.argv[0]) == "default_worker.py":  # Ray's, not the command itself
    _write_unchanged = PartsFolder.write
    PartsFolder.write = _write  # type: ignore[method-assign]
