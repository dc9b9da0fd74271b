"""What callers see: folded state and events as JSON objects. Pure; nothing here reads or sends."""
