"""What would have happened: arrivals, a fleet and a policy under a clock of their own. Nothing is written anywhere."""
