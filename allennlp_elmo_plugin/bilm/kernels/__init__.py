"""What makes the language model fast without changing its numbers."""
