"""The shared machinery of the tests."""
