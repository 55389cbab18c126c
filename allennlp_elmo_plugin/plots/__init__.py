"""
What `allennlp elmo-plot` draws: `training_curves.py` of runs, `contextual_map.py` of a word in a
text (page: `map.html`), `surprise.py` of the words of a text (page: `surprise.html`).
"""
