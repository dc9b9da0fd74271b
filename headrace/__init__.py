"""What a person types or imports: the command line, the local stack, the HTTP client. Composition only, no rules."""
