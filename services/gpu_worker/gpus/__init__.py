"""Real GPUs: which there are, what their memory holds, how busy they are."""
