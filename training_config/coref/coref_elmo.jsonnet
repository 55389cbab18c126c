// Coreference with ELMo at the input of the context layer: coref.jsonnet and what is below.
//
// Paper: average F1 70.4 on the test set, 3.2 over its baseline (Peters et al. 2018, table 1).
// AllenNLP: no score in the model cards of allennlp-models.
// Differs: see coref.jsonnet.
// Score, hardware, time: not measured.
// Data: those of coref.jsonnet; ELMO, see elmo.libsonnet.
local elmo = import '../elmo.libsonnet';

elmo.added_to(import 'coref.jsonnet', encoder='context_layer') {
  model+: {
    // A span also has the attended embeddings of its words, and of spans there are three (see there).
    mention_feedforward+: { input_dim+: elmo.dim },
    antecedent_feedforward+: { input_dim+: 3 * elmo.dim },
  },
}
