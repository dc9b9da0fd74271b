"""The commands of `headrace events`."""
