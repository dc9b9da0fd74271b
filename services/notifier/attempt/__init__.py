"""One HTTP attempt to deliver a webhook, from the signature to what follows from the answer.

`post`, `signature`, `verdict`, `heard` are pure, `delivery` sends through `contracts.outbound`. Nothing
knows the store.
"""
