"""The policy under made-up load beside simpler ones, on a simulated clock: `make bench-scheduling`."""
