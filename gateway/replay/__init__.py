"""What other rules would have done: recorded or synthetic work through the real lease book, in virtual time. It must never act."""
