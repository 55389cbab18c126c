local elmo = (import 'elmo.libsonnet') { dropout:: 0.0 };

elmo.added_to(import 'chunking.jsonnet', encoder='encoder')
