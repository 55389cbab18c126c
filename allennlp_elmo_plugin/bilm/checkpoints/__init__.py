"""
The files of a language model. `saved_variables.py` reads weights into a model, whatever their
format; start there. `published_layout.py` is the table of the HDF5 layout, `weights.py` reads and
writes it, and `tensorflow_checkpoint.py` reads the format of bilm-tf's checkpoints.
"""
