"""What training a language model needs beside AllenNLP's trainer."""
