"""A kernel's state on real GPUs, by NVIDIA's driver: loaded by the helper process and the checks alone, never by the supervisor itself."""
