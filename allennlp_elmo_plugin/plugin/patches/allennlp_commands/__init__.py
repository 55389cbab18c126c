"""Modules that AllenNLP 0.9 had in `allennlp.commands`; see `drop_in.apply`."""
