"""Commands about what only operators see. Composition only."""
