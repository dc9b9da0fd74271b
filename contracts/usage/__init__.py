"""What tenants used: device time, loads, files, jobs and deliveries by tenant, model and UTC day.

`rows` says what is counted, `fold` counts it from the log, both pure; `owners` finds whose a job is, `counting` folds a
log as it is read, `reading` answers with what the archivist has counted and the rest of the log, `audit` compares.
"""
