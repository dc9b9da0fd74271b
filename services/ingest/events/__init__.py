"""The event log as callers read it: lists, exports, replays and the state at an instant, over log and archive alike."""
