"""The loops, each written once; learners, losses and penalties are compiled into them."""
