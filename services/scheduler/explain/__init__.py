"""Why a job waits, where it stands and when it should start, answered from the fold. Pure.

Nothing here changes the fold or a choice; what it says is as good as the estimates it rests on.
"""
