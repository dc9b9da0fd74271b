"""`headrace vram`: measure what a model needs of a device, and show what was measured."""
