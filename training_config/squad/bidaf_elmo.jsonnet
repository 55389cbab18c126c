// Question answering with ELMo at two layers, as in the paper: at the input and at the output of
// the phrase layer. bidaf.jsonnet and what is below.
//
// Paper: F1 85.8 on the test set, 4.7 over its baseline (Peters et al. 2018, table 1).
// AllenNLP: EM 71, F1 80 on the validation set (model card `rc-bidaf-elmo` of allennlp-models).
// Differs: see bidaf.jsonnet.
// Score, hardware, time: not measured.
// Data: those of bidaf.jsonnet; ELMO, see elmo.libsonnet.
local elmo = import '../elmo.libsonnet';
local bidaf = import 'bidaf.jsonnet';

elmo.added_to(bidaf, encoder='phrase_layer', at_output=true) {
  model+: {
    // The highway layers read what goes into the phrase layer, not what goes round it.
    num_highway_layers: 0,
    phrase_layer+: { num_highway_layers: bidaf.model.num_highway_layers },
    matrix_attention+: { tensor_1_dim+: elmo.dim, tensor_2_dim+: elmo.dim },
    // Passage, attended question, and two products.
    modeling_layer+: { input_size+: 4 * elmo.dim },
    span_end_encoder+: { input_size+: 4 * elmo.dim },
  },
}
