"""What ``%%distributed`` and ``%burst`` are made of, in the kernel: words read, the gateway asked, output shown, results taken."""
