"""How the processes of a burst are started and ended: a launcher each for one machine and, later, for a cluster."""
