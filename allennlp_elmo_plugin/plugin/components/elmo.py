"""`Elmo` for configs and for models of AllenNLP."""

import functools
from typing import Any

from allennlp.common import FromParams

from allennlp_elmo_plugin.elmo import elmo
from allennlp_elmo_plugin.plugin.registration import configuration_errors


class Elmo(elmo.Elmo, FromParams):
    """Our `Elmo`, made from the section of a config, whose mistakes are `ConfigurationError`s."""

    @functools.wraps(elmo.Elmo.__init__)  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with configuration_errors():
            super().__init__(*args, **kwargs)
