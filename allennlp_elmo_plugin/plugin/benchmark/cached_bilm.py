"""A frozen language model that computes each sentence of a benchmark once."""

import math
import os
import tempfile
import weakref
from pathlib import Path
from shutil import disk_usage
from typing import Any

import numpy as np
import torch

from allennlp_elmo_plugin.elmo.elmo import Elmo
from allennlp_elmo_plugin.elmo.elmo_bilm import ElmoBiLm, PaddedLayers


class Vectors:
    """
    The layers of sentences by language model and character ids, in a temporary file in `folder`. It
    uses at most half of the disk's free space.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file: Any = tempfile.TemporaryFile(dir=folder)
        weakref.finalize(self, self._file.close)
        self._places: dict[tuple[Any, ...], tuple[int, tuple[int, ...]]] = {}

    def add(self, key: tuple[Any, ...], layers: np.ndarray) -> None:
        """Keep float32 layers, if there is room for them."""
        end = self._file.seek(0, os.SEEK_END)
        if end + layers.nbytes <= disk_usage(self._file.fileno()).free:
            layers.tofile(self._file)
            self._places[key] = (end, layers.shape)

    def get(self, key: tuple[Any, ...]) -> np.ndarray | None:
        """Return the layers of a sentence, shape `(num_layers, timesteps + 2, dim)`, if kept."""
        if key not in self._places:
            return None
        begin, shape = self._places[key]
        self._file.seek(begin)
        return np.fromfile(self._file, np.float32, math.prod(shape)).reshape(shape)


class CachedBiLm(torch.nn.Module):
    """
    Replaces the frozen biLM of an `Elmo`, which still trains its scalar mix. This module doesn't
    own the biLM, so checkpoints of the task model exclude its weights.
    """

    def __init__(self, bilm: ElmoBiLm, vectors: Vectors) -> None:
        super().__init__()
        self._bilm = [bilm.eval()]
        self._vectors = vectors
        self._fingerprint = tuple(bilm.fingerprint().values())
        self.num_layers = bilm.num_layers

    def get_output_dim(self) -> int:
        return self._bilm[0].get_output_dim()

    @torch.no_grad()
    def forward(self, inputs: torch.Tensor, word_inputs: Any = None) -> PaddedLayers:
        """Return what `ElmoBiLm.forward` returns; `word_inputs` are ignored."""
        lengths = (inputs > 0).any(-1).sum(-1).tolist()
        rows = inputs.cpu().short().numpy()
        keys = [(*self._fingerprint, row[:length].tobytes()) for row, length in zip(rows, lengths)]
        kept: dict[Any, Any] = {key: self._vectors.get(key) for key in keys}
        missing = {key: row for row, key in enumerate(keys) if kept[key] is None}
        if missing:
            longest = max(1, *(lengths[row] for row in missing.values()))
            bilm = self._bilm[0].to(inputs.device)
            activations = bilm(inputs[list(missing.values()), :longest])["activations"]
            # Shape: (num_layers, len(missing), longest + 2, dim)
            computed = torch.stack(activations).float().cpu().numpy()
            for place, (key, row) in enumerate(missing.items()):
                kept[key] = computed[:, place, : lengths[row] + 2]
                self._vectors.add(key, kept[key])
        n_steps = inputs.size(1) + 2
        layers = np.zeros((self.num_layers, len(keys), n_steps, self.get_output_dim()), "float32")
        for row, key in enumerate(keys):
            layers[:, row, : lengths[row] + 2] = kept[key]
        mask = torch.arange(n_steps) < torch.tensor(lengths).unsqueeze(1) + 2
        return {
            "activations": list(torch.from_numpy(layers).to(inputs.device)),
            "mask": mask.to(inputs.device),
        }


def keep_vectors(model: torch.nn.Module, vectors: Vectors) -> None:
    """Replace each frozen biLM of a model by a `CachedBiLm`, unless its states are carried."""
    for module in list(model.modules()):
        bilm: Any = module.bilm if isinstance(module, Elmo) else None
        if bilm and bilm.initial_state != "carried":
            if not any(parameter.requires_grad for parameter in bilm.parameters()):
                module._elmo_lstm = CachedBiLm(bilm, vectors)
