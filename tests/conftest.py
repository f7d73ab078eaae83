"""Settings of the whole suite."""

from hypothesis import settings

# First calls compile; a deadline would measure the compiler and the other people on the machine.
settings.register_profile("sparseoco", deadline=None)
settings.load_profile("sparseoco")
