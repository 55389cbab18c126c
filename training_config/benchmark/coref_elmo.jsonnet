local elmo = (import 'elmo.libsonnet') { dropout:: 0.2 };

elmo.added_to(import 'coref.jsonnet', encoder='context_layer') {
  model+: {
    mention_feedforward+: { input_dim+: elmo.dim },
    antecedent_feedforward+: { input_dim+: 3 * elmo.dim },
  },
}
