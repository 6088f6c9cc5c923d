"""What sets watts. The interface is in `base`; each other module is one way to do it."""
