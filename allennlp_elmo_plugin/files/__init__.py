"""Reading untrusted files as data, and writing files atomically."""
