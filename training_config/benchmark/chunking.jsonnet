// Chunking, small: BiLSTM-CRF. For `allennlp elmo-benchmark`.
local small = import 'small.libsonnet';

(import 'ner.jsonnet') {
  dataset_reader: {
    type: 'conll2000',
    convert_to_coding_scheme: 'BIOUL',
    token_indexers: small.indexers,
  },
}
