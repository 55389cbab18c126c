"""
How files are read and written, whatever is in them. `whole_file.py` and `output_folder.py` write
whole or not at all; `json_file.py`, `hdf5_file.py`, `tensor_file.py` and `model_archive.py` read
the files of strangers, as data.
"""
