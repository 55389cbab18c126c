// Named entities, small: BiLSTM-CRF. For `allennlp elmo-benchmark`; docs/results.md has its scores.
local small = import 'small.libsonnet';

small.data {
  dataset_reader: {
    type: 'conll2003',
    tag_label: 'ner',
    convert_to_coding_scheme: 'BIOUL',
    token_indexers: small.indexers,
  },
  model: {
    type: 'crf_tagger',
    label_encoding: 'BIOUL',
    dropout: 0.5,
    include_start_end_transitions: false,
    text_field_embedder: { token_embedders: small.embedders },
    encoder: small.lstm(small.dim),
  },
  data_loader: { batch_sampler: { type: 'bucket', sorting_keys: ['tokens'], batch_size: 32 } },
  trainer: small.trainer('f1-measure-overall', patience=5, lr=0.003),
}
