#!/usr/bin/env bash
# Trains a small ELMo on the language reference that every Python contains, measures it on held-out
# text, exports it and embeds sentences with it. This takes 3 to 5 minutes on a CPU.
#
#   bash scripts/demo.sh [OUTPUT_DIR [ARGUMENTS OF allennlp train...]]
#
# The script writes everything to OUTPUT_DIR (by default the folder `demo` of the repository). A
# second run starts anew. The script refuses a folder that it didn't make.
# `python -m allennlp_elmo_plugin elmo...` does the same as `allennlp elmo...`, and starts faster.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
output=${1:-$root/demo}
shift || true
case $output in /*) ;; *) output=$PWD/$output ;; esac
cd "$root"
output=${output#"$root/"}

mark="$output/.made-by-elmo-demo"
if [ -e "$output" ] && [ ! -e "$mark" ] && [ -n "$(ls -A "$output")" ]; then
    echo "$output is not empty, and not from an earlier demo; choose another folder" >&2
    exit 1
fi
mkdir -p "$output"
touch "$mark"
(cd "$output" && rm -rf corpus vocab model elmo heldout.json layers.hdf5)

export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONWARNINGS="${PYTHONWARNINGS:-ignore:pkg_resources is deprecated}"
export ALLENNLP_LOG_LEVEL="${ALLENNLP_LOG_LEVEL:-WARNING}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"  # The matrices are small.

step() {
    printf '\n## %s\n$' "$1"
    shift
    printf ' %q' "$@"
    printf '\n'
    "$@"
}

export TRAIN_DATA_PATH="$output/corpus/train.txt"
export VALIDATION_DATA_PATH="$output/corpus/validation.txt"
export VOCABULARY_PATH="$output/vocab/vocabulary"

demo() {
    step "Text: the Python language reference, one tokenised sentence per line" \
        python scripts/python_reference_corpus.py "$output/corpus"
    step "Vocabulary: the words that occur twice or more" \
        python -m allennlp_elmo_plugin elmo-vocab "$TRAIN_DATA_PATH" --output "$output/vocab" \
        --min-count 2
    step "Training: each epoch reads the text once, then measures the validation text" \
        allennlp train training_config/pretrain/demo.jsonnet -s "$output/model" "$@"
    step "Evaluation: the perplexity of text that training has not seen" \
        allennlp evaluate "$output/model/model.tar.gz" "$output/corpus/heldout.txt" \
        --output-file "$output/heldout.json"
    step "Export: the model in the layout of published ELMo models" \
        python -m allennlp_elmo_plugin elmo-export "$output/model/model.tar.gz" "$output/elmo"
    step "Embedding: the vectors of the held-out text" \
        python -m allennlp_elmo_plugin elmo "$output/corpus/heldout.txt" "$output/layers.hdf5" \
        --average --options-file "$output/elmo"
    step "Two senses of \"set\": the uses in the text that are most similar to each query" \
        python -m allennlp_elmo_plugin elmo-nearest set "$output/corpus" \
        --options-file "$output/elmo" --query "A set is an unordered collection of hashable objects ." \
        --query "The attribute is set to None ."
    step "Results" python scripts/demo_report.py "$output"
}

if [ -t 2 ]; then
    demo "$@"
else  # a log file: no progress bars
    TQDM_DISABLE=1 ALLENNLP_LOG_LEVEL=INFO demo "$@" 2>&1 | python -u scripts/demo_log.py
fi
