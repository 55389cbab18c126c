"""The files of language models: `saved_variables.py` reads any of them."""
