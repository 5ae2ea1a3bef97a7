"""The loops of one flow: beats are written, and watched as they arrive."""
