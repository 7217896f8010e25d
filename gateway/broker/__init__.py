"""The loop that acts: what supervisors say becomes events, what the lease book decides becomes orders."""
