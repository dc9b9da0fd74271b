"""Four services around one log: ingest, scheduler, gpu_worker, notifier. They never import each other."""
