// Sentiment of whole reviews, small: BiLSTM, pooled. It is trained on the first 200 words of each
// text and tested on whole texts. For `allennlp elmo-benchmark`; docs/results.md has its scores.
local small = import 'small.libsonnet';
local hidden = 100;
// Given vectors stay as they are: trained, they let the model learn the training texts by heart.
local tokens = small.embedders.tokens { trainable: !std.objectHas(self, 'pretrained_file') };

small.data {
  dataset_reader: {
    type: 'text_classification_json',
    tokenizer: { type: 'just_spaces' },
    max_sequence_length: 200,
    token_indexers: { tokens: small.indexers.tokens },
  },
  validation_dataset_reader: self.dataset_reader { max_sequence_length: null },
  model: {
    type: 'basic_classifier',
    text_field_embedder: { token_embedders: { tokens: tokens } },
    seq2seq_encoder: small.lstm(small.word_dim, hidden_size=hidden),
    seq2vec_encoder: { type: 'boe', embedding_dim: 2 * hidden, averaged: true },
    dropout: 0.5,
  },
  data_loader: { batch_sampler: { type: 'bucket', sorting_keys: ['tokens'], batch_size: 64 } },
  trainer: small.trainer('accuracy', patience=3),
}
