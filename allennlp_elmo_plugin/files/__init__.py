"""Reading files of strangers as data, and writing files whole or not at all."""
