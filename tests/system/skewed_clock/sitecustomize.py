"""Put on the path of a process, this moves its wall clock by CLOCK_OFFSET_S, as on a host without NTP."""

import os
import time

_OFFSET_S = float(os.environ.get("CLOCK_OFFSET_S", "0"))
_true_time, _true_time_ns = time.time, time.time_ns
time.time = lambda: _true_time() + _OFFSET_S
time.time_ns = lambda: _true_time_ns() + int(_OFFSET_S * 1e9)
