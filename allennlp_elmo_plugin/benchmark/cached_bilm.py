"""
A frozen language model for task benchmarks, which computes each sentence once.
"""

from typing import Dict, Optional, Tuple

import torch
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.modules.elmo import Elmo
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm, PaddedLayers

Vectors = Dict[bytes, torch.Tensor]
"""Layers of sentences, shape `(num_layers, timesteps + 2, dim)`, by their characters."""

VectorsOfModels = Dict[Tuple[str, ...], Vectors]
"""By the fingerprint of a language model."""


class CachedBiLm(torch.nn.Module):
    """
    A frozen biLM that computes the layers of each sentence once. It stands in for the biLM of an
    `Elmo`, whose scalar mix and dropout are still trained. The biLM is no part of this module: its
    weights are in no checkpoint of the task model.

    # Parameters

    bilm : `ElmoBiLm`
        Its `initial_state` is not "carried", so that the vectors of a sentence depend on nothing
        else.
    vectors : `Dict[bytes, torch.Tensor]`
        What has been computed so far; several modules with the same weights may share it.
    """

    def __init__(self, bilm: ElmoBiLm, vectors: Vectors) -> None:
        super().__init__()
        if bilm.initial_state == "carried":
            raise ConfigurationError(
                "vectors can be kept only if they are the same each time: set initial_state to "
                '"settled" or "zero" in the config of ELMo'
            )
        self._bilm = [bilm.eval()]
        self._vectors = vectors
        self.num_layers = bilm.num_layers

    def get_output_dim(self) -> int:
        return self._bilm[0].get_output_dim()

    @torch.no_grad()
    def forward(
        self, inputs: torch.Tensor, word_inputs: Optional[torch.Tensor] = None
    ) -> PaddedLayers:
        """
        See `ElmoBiLm.forward`; `word_inputs` are not used.
        """
        lengths = (inputs > 0).any(-1).sum(-1).tolist()
        rows = inputs.cpu().short().numpy()
        keys = [row[:length].tobytes() for row, length in zip(rows, lengths)]
        missing = {key: row for row, key in enumerate(keys) if key not in self._vectors}
        if missing:
            bilm = self._bilm[0].to(inputs.device)
            longest = max(max(lengths[row] for row in missing.values()), 1)
            output = bilm(inputs[list(missing.values()), :longest])
            # Shape: (num_layers, len(missing), longest + 2, dim)
            computed = torch.stack(output["activations"]).cpu()
            for position, (key, row) in enumerate(missing.items()):
                self._vectors[key] = computed[:, position, : lengths[row] + 2].clone()
        shape = (self.num_layers, len(keys), inputs.size(1) + 2, self.get_output_dim())
        layers = torch.zeros(shape)
        for row, key in enumerate(keys):
            layers[:, row, : lengths[row] + 2] = self._vectors[key]
        mask = torch.arange(inputs.size(1) + 2) < torch.tensor(lengths).unsqueeze(1) + 2
        return {"activations": list(layers.to(inputs.device)), "mask": mask.to(inputs.device)}


def keep_vectors(model: torch.nn.Module, vectors: VectorsOfModels) -> None:
    """
    Put a `CachedBiLm` in the place of each frozen biLM of a model. Those with the same weights and
    settings share their vectors.
    """
    for module in list(model.modules()):
        if isinstance(module, Elmo) and isinstance(module.bilm, ElmoBiLm):
            if not any(parameter.requires_grad for parameter in module.bilm.parameters()):
                shared = vectors.setdefault(tuple(module.bilm.fingerprint().values()), {})
                module.replace_bilm(CachedBiLm(module.bilm, shared))
