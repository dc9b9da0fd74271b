"""Dead letters of jobs: finding them, and the operations that take many of them back to work or off the list."""
