"""
What `allennlp elmo-plot` draws: `training_curves.py` of runs, `word_map.py` of a word in a text,
`surprise.py` of the words of a text.
"""
