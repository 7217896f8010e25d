"""Decisions about GPUs: who gets one, who gives way, who waits. Pure: no clock, no I/O, no randomness."""
