"""Bursts, the gateway's side: cells that run on many workers, started, kept and found again."""
