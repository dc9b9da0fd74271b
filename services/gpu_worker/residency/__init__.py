"""Which models are in the memory of a device, and whose turn it is to have room there."""
