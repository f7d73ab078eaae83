"""What drives a learner (`Algorithm.driver`): the stream of rows, or passes over all of them."""

ONLINE_DRIVERS = ("stream", "dense")
