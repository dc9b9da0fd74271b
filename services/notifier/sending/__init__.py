"""From a delivery that is due to what came of it: who gets a place, where it goes, what is recorded, who is warned."""
