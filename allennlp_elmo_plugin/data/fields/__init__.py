"""Fields of a window of text, cheap enough for tens of thousands of words a second and more."""

from allennlp_elmo_plugin.data.fields.character_ids_field import CharacterIdsField
from allennlp_elmo_plugin.data.fields.vocabulary_ids_field import VocabularyIdsField
from allennlp_elmo_plugin.data.fields.window_field import WindowField
