"""From the margins of a configuration to its loss, its error and its slopes.

``respond(value, slope, z, u, first, outputs, label) -> (loss, error)`` reads the margins
``z[first : first + outputs]`` of one configuration and writes the slopes dℓ/dz into the same places of `u`. Errors count
the predicted class: the second of two classes where z > 0; else the class of the largest margin, the first of equals.
"""

from numba.extending import register_jitable


@register_jitable
def binary(value, slope, z, u, first, outputs, label):
    """One margin, two classes: class index 1 is y = +1."""
    y = 1.0 if label == 1.0 else -1.0
    margin = float(z[first])
    u[first] = slope(margin, y)
    return value(margin, y), (margin > 0.0) != (y > 0.0)


@register_jitable
def one_vs_rest(value, slope, z, u, first, outputs, label):
    """A margin a class; the loss is the sum of the binary losses."""
    loss = 0.0
    best = 0
    for k in range(outputs):
        y = 1.0 if label == k else -1.0
        margin = float(z[first + k])
        u[first + k] = slope(margin, y)
        loss += value(margin, y)
        if z[first + k] > z[first + best]:
            best = k
    return loss, best != label


@register_jitable
def regression(value, slope, z, u, first, outputs, label):
    """One margin predicts the number itself; there are no errors to count."""
    margin = float(z[first])
    u[first] = slope(margin, label)
    return value(margin, label), False
