"""A corpus of several files, one of them compressed."""

import gzip
from pathlib import Path

LINES = [" ".join(f"{i}.{j}" for j in range(i % 7)) for i in range(300)]


def write_corpus(folder: Path) -> Path:
    """Write `LINES` to three files, and an empty one beside them."""
    folder.mkdir()
    for number in range(3):
        lines = LINES[100 * number : 100 * number + 100]
        content = "".join(f"{line}\n" for line in lines).encode()
        if number == 1:
            (folder / f"{number}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / f"{number}.txt").write_bytes(content)
    (folder / "empty").touch()
    return folder
