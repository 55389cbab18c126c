"""Tokens of AllenNLP's text fields as character ids."""

from allennlp_elmo_plugin.data.token_indexers.elmo_characters import (
    ELMoCharacterMapper,
    ELMoTokenCharactersIndexer,
)
