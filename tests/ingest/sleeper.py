"""A process that is asked something and never answers."""

import time

if __name__ == "__main__":
    time.sleep(600)
