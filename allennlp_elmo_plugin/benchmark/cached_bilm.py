"""A frozen language model for task benchmarks, which computes each sentence once."""

import math
import tempfile
import weakref
from pathlib import Path
from shutil import disk_usage
from typing import Any, Dict, Optional, Tuple

import numpy as np
import torch

from allennlp_elmo_plugin.modules.elmo import Elmo
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm, PaddedLayers

Key = Tuple[Any, ...]


class Vectors:
    """
    The layers of sentences by language model and character ids, in a temporary file in `folder`. It
    takes at most half of the free space of its disk.
    """

    def __init__(self, folder: Optional[Path] = None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)
        weakref.finalize(self, self._file.close)
        self._places: Dict[Key, Tuple[int, Tuple[int, ...]]] = {}
        self._end = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def add(self, key: Key, layers: np.ndarray) -> None:
        """Keep float32 layers, if there is room for them."""
        if self._end + layers.nbytes <= disk_usage(self._file.fileno()).free:
            self._file.seek(self._end)
            self._file.write(layers.tobytes())
            self._places[key] = (self._end, layers.shape)
            self._end += layers.nbytes

    def read(self, key: Key) -> np.ndarray:
        """Return the layers of a sentence, shape `(num_layers, timesteps + 2, dim)`."""
        begin, shape = self._places[key]
        self._file.seek(begin)
        data = self._file.read(4 * math.prod(shape))
        return np.frombuffer(data, dtype=np.float32).reshape(shape)


class CachedBiLm(torch.nn.Module):
    """
    Stand in for the frozen biLM of an `Elmo`, whose scalar mix and dropout are still trained. The
    biLM is no part of this module: its weights are in no checkpoint of the task model.
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
    def forward(
        self, inputs: torch.Tensor, word_inputs: Optional[torch.Tensor] = None
    ) -> PaddedLayers:
        """See `ElmoBiLm.forward`; `word_inputs` are not used."""
        lengths = (inputs > 0).any(-1).sum(-1).tolist()
        rows = inputs.cpu().short().numpy()
        keys = [(*self._fingerprint, row[:length].tobytes()) for row, length in zip(rows, lengths)]
        missing = {key: row for row, key in enumerate(keys) if key not in self._vectors}
        found: Dict[Key, np.ndarray] = {}
        if missing:
            bilm = self._bilm[0].to(inputs.device)
            longest = max(1, *(lengths[row] for row in missing.values()))
            activations = bilm(inputs[list(missing.values()), :longest])["activations"]
            # Shape: (num_layers, len(missing), longest + 2, dim)
            computed = torch.stack(activations).float().cpu().numpy()
            for place, (key, row) in enumerate(missing.items()):
                found[key] = computed[:, place, : lengths[row] + 2]
                self._vectors.add(key, found[key])
        layers = torch.zeros(self.num_layers, len(keys), inputs.size(1) + 2, self.get_output_dim())
        for row, key in enumerate(keys):
            kept = found[key] if key in found else self._vectors.read(key)
            layers.numpy()[:, row, : lengths[row] + 2] = kept
        mask = torch.arange(inputs.size(1) + 2) < torch.tensor(lengths).unsqueeze(1) + 2
        return {"activations": list(layers.to(inputs.device)), "mask": mask.to(inputs.device)}


def keep_vectors(model: torch.nn.Module, vectors: Vectors) -> None:
    """Replace each frozen biLM of a model by a `CachedBiLm`, unless its states are carried."""
    for module in list(model.modules()):
        if not isinstance(module, Elmo) or not isinstance(module.bilm, ElmoBiLm):
            continue
        is_trained = any(parameter.requires_grad for parameter in module.bilm.parameters())
        if not is_trained and module.bilm.initial_state != "carried":
            module._elmo_lstm = CachedBiLm(module.bilm, vectors)
