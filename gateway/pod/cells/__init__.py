"""Which notebook cells can touch a GPU, judged without running them. It must never import what a user's image may lack."""
