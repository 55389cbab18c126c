#!/usr/bin/env bash
# Trains a small ELMo on the language reference that every Python contains, measures it on held-out
# text and embeds sentences with it. This takes 3 to 5 minutes on a CPU.
#
#   bash scripts/demo.sh [OUTPUT_DIR [ARGUMENTS OF elmo-train...]]
#
# The script writes everything to OUTPUT_DIR (by default the folder `demo` of the repository). A
# second run starts anew. The script refuses a folder that it didn't make.
# `allennlp-elmo-plugin` is the same program as `python -m allennlp_elmo_plugin`.
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
(cd "$output" && rm -rf corpus elmo heldout.txt layers.hdf5)

export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONWARNINGS="${PYTHONWARNINGS:-ignore:pkg_resources is deprecated}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"  # The matrices are small.

step() {
    printf '\n## %s\n$' "$1"
    shift
    printf ' %q' "$@"
    printf '\n'
    "$@"
}

demo() {
    step "Text: the Python language reference, one tokenised sentence per line" \
        python scripts/python_reference_corpus.py "$output/corpus"
    step "Training: each epoch reads the text once, then measures the validation text" \
        python -m allennlp_elmo_plugin elmo-train "$output/corpus/train.txt" \
        --validation "$output/corpus/validation.txt" --size demo --output "$output/elmo" "$@"
    step "Evaluation: the perplexity of text that training has not seen" \
        python -m allennlp_elmo_plugin elmo-perplexity "$output/elmo" "$output/corpus/heldout.txt" |
        tee "$output/heldout.txt"
    step "Embedding: the vectors of the held-out text" \
        python -m allennlp_elmo_plugin elmo "$output/corpus/heldout.txt" "$output/layers.hdf5" \
        --average --model "$output/elmo"
    step "Two senses of \"set\": the uses in the text that are most similar to each query" \
        python -m allennlp_elmo_plugin elmo-nearest set "$output/corpus" \
        --model "$output/elmo" --query "A set is an unordered collection of hashable objects ." \
        --query "The attribute is set to None ."
    step "Results" python scripts/demo_report.py "$output"
}

if [ ! -t 2 ]; then  # a log file: no progress bars
    export TQDM_DISABLE=1
fi
demo "$@"
