"""The version of this package, and of the AllenNLP that it extends."""

__version__ = "0.1.0"

ALLENNLP_VERSION = "2.10.1"

# Without --no-deps, pip looks for versions that don't exist for Python 3.11 and later.
INSTALL_ALLENNLP = (
    "pip install 'allennlp_elmo_plugin[allennlp]' && pip install --no-deps "
    f"allennlp=={ALLENNLP_VERSION} allennlp-models=={ALLENNLP_VERSION}"
)
