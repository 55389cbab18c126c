"""
The entry point of spaCy's component "elmo", outside of the package: spaCy imports it for every
pipeline, but only a pipeline with this component may activate the plugin of AllenNLP.
"""

from typing import Any, Literal

from spacy.language import Language


@Language.factory("elmo", assigns=["doc.tensor"])
def make_elmo(
    nlp: Language,
    name: str,
    model: str = "tiny",
    layers: Literal["average", "top", "concatenated"] | int = "average",
    device: str = "cpu",
) -> Any:
    """Return an `ElmoPipe`."""
    from allennlp_elmo_plugin.adapters.spacy import ElmoPipe

    return ElmoPipe(nlp, name, model, layers, device)
