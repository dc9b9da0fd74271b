"""From events to deliveries: who wants an event, how it was with the job then, and the exact bytes each is sent."""
