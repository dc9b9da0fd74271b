"""One child as its supervisor sees it: a process that has one model. Knows nothing of attempts, nor of other children.

`resident` is a child with its model; `child_process`, `child_log` and `memory` are the child as a process; `frames`,
`decoding` and `encoding` are the parent's half of its language.
"""
