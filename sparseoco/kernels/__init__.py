"""The compiled loops; the functions of learners, losses and penalties are compiled into them."""
