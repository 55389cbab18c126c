// Named entities, CoNLL-2003: BiLSTM-CRF with a character CNN. The baseline of ner_elmo.jsonnet.
//
// Paper: F1 90.15 on the test set (Peters et al. 2018, table 1).
// AllenNLP: no score without ELMo in the model cards of allennlp-models.
// Differs: AllenNLP's `crf_tagger` with the sizes of its own config with ELMo; trained on the
//   training set alone.
// Score, hardware, time: not measured (the data are not free). docs/results.md has small data.
// Data: NER_TRAIN_DATA_PATH, NER_VALIDATION_DATA_PATH (eng.train, eng.testa); GLOVE (optional:
//   glove.6B.50d).
// Metric: `f1-measure-overall` is what conlleval counts, since decoding gives valid tags only.
local data = import '../data.libsonnet';

{
  dataset_reader: {
    type: 'conll2003',
    tag_label: 'ner',
    convert_to_coding_scheme: 'BIOUL',
    token_indexers: {
      tokens: { type: 'single_id', lowercase_tokens: true },
      token_characters: { type: 'characters', min_padding_length: 3 },
    },
  },
  train_data_path: data.path('NER_TRAIN_DATA_PATH'),
  validation_data_path: data.path('NER_VALIDATION_DATA_PATH'),
  model: {
    type: 'crf_tagger',
    label_encoding: 'BIOUL',
    dropout: 0.5,
    include_start_end_transitions: false,
    text_field_embedder: {
      token_embedders: {
        tokens: data.word_vectors(50),
        token_characters: {
          type: 'character_encoding',
          embedding: { embedding_dim: 16, vocab_namespace: 'token_characters' },
          encoder: {
            type: 'cnn',
            embedding_dim: 16,
            num_filters: 128,
            ngram_filter_sizes: [3],
            conv_layer_activation: 'relu',
          },
        },
      },
    },
    encoder: {
      type: 'lstm',
      input_size: 50 + 128,
      hidden_size: 200,
      num_layers: 2,
      dropout: 0.5,
      bidirectional: true,
    },
  },
  data_loader: { batch_size: 64, shuffle: true },
  trainer: {
    num_epochs: 75,
    patience: 25,
    grad_norm: 5.0,
    validation_metric: '+f1-measure-overall',
    optimizer: { type: 'adam', lr: 0.001 },
  },
  evaluation: { type: 'official', task: 'ner' },
}
