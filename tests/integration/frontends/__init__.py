"""Front ends that people have, each against a real gateway."""
