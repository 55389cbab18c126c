"""
Text as the language model reads it: `lines.py` reads any file, `corpus.py` reads the files of a
corpus, `word_ids.py` numbers their words, and `windows.py` cuts them for truncated
back-propagation.
"""
