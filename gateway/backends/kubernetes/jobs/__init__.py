"""A burst's ranks as pods: one Indexed Job, and what belongs to it."""
