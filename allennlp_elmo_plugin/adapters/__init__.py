"""The interfaces of other programs over `ElmoEmbedder`: a module for each, of its name."""
