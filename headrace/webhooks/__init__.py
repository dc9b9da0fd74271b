"""`headrace webhook`: endpoints, deliveries, and a receiver of one's own that verifies what comes."""
