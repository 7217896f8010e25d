"""What both ends of a kernel's link speak: models, errors, framing.

Standard library only, so that it can be imported in any kernel image. It must never import another room.
"""
