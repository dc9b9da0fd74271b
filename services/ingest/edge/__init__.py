"""The edge: everything between the socket and a handler that trusts its input.

`framing` and `protocol` bound connections and heads, `body` bounds bodies, `strict_json` gives bytes one
meaning, `problems` turns every refusal into one kind of answer. Nothing here knows what a job is.
"""
