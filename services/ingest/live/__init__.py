"""Live streams: what happens to jobs, told to whoever listens, as it is appended to the log."""
