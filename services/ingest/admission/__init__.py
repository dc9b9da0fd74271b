"""From a request to a durable job: what is asked (`draft`), whether there is room (`verdict`), and the two steps of an
Idempotency-Key (`admit`).
"""
