"""
Copy the output of the demo to a log file: one line for each epoch of training, without the
messages of AllenNLP and NLTK.

    ALLENNLP_LOG_LEVEL=INFO COMMAND 2>&1 | python -u scripts/demo_log.py
"""

import re
import sys

EPOCH = re.compile(r"console_logger - perplexity +\| +([\d.]+) +\| +([\d.]+)")
# AllenNLP logs metrics as JSON, whose lines begin with a quote or a brace.
OTHERS = re.compile(r'\[nltk_data\]|[-\d]+ [:,\d]+ - (INFO|WARNING - allennlp\.)|  "|\}')


def main() -> None:
    n_epochs = 0
    for line in sys.stdin:
        if match := EPOCH.search(line):
            n_epochs += 1
            training, validation = map(float, match.groups())
            print(
                f"epoch {n_epochs:2}: perplexity {training:7.1f} in training, {validation:7.1f} on "
                "the validation text"
            )
        elif not OTHERS.match(line):
            print(line, end="")


if __name__ == "__main__":
    main()
