"""
The files of a language model. Start with `saved_variables.py`, which reads any; then the table of
the HDF5 layout, `published_layout.py`.
"""
