// Sentiment of film reviews with ELMo at the input of the encoder: imdb.jsonnet and what is below.
//
// Made for an ELMo that was itself trained on the reviews, those without a label among them, in the
// small size (character filters, cells and projection: training_config/pretrain/small.jsonnet).
// scripts/imdb.py writes their text for `allennlp elmo-vocab` and pretraining.
//
// Paper: none. Score, hardware, time: not measured.
// AllenNLP: no score in the model cards of allennlp-models.
// Data: those of imdb.jsonnet; ELMO, see elmo.libsonnet.
local elmo = import '../elmo.libsonnet';

elmo.added_to(import 'imdb.jsonnet', encoder='seq2seq_encoder')
