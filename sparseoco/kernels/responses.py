"""Losses, errors and slopes from the margins of a row, per configuration.

``respond(value, slope, bound, z, u, outputs, label, t, diverged, loss_sum, error_count, losses)`` reads the margins `z`
of one row, ``z[q·outputs : (q + 1)·outputs]`` for configuration q, writes the slopes dℓ/dz to the same positions of
`u`, and adds each configuration's loss and error to its sums. The predicted class is the second of two classes if
z > 0; with more classes that of the largest margin, the first on ties. `losses`, unless None, receives the loss of
every column's problem: of its own margin, or of all classes for a joint loss.

A configuration diverges if a margin is not finite or exceeds `bound`: the round `t` is recorded, and from then on its
slopes and losses are 0 and its sums do not change. The code for one margin per configuration has no branches, so that
the loop over configurations vectorises.
"""

from sparseoco.core.compile_cache import register_jitable


@register_jitable(forceinline=True)
def respond_single(value, slope, bound, z, q, y, u, t, diverged, loss_sum, losses):
    """Loss and slope of configuration q, which has one margin; returns whether it has not diverged."""
    margin = float(z[q])
    fine = (diverged[q] == 0) & (abs(margin) <= bound)
    diverged[q] = t if (diverged[q] == 0) & (not fine) else diverged[q]
    u[q] = slope(margin, y) if fine else 0.0
    loss_sum[q] += value(margin, y) if fine else 0.0
    if losses is not None:
        losses[q] = value(margin, y) if fine else 0.0
    return fine


@register_jitable(forceinline=True)
def stop_learning(q, first, stop, u, t, diverged, losses):
    """Record that configuration q, with columns first..stop, has diverged; set its slopes and losses to 0."""
    diverged[q] = t if diverged[q] == 0 else diverged[q]
    for c in range(first, stop):
        u[c] = 0.0
        if losses is not None:
            losses[c] = 0.0


@register_jitable(forceinline=True)
def binary(value, slope, bound, z, u, outputs, label, t, diverged, loss_sum, error_count, losses=None):
    """One margin, two classes: class index 1 is y = +1, any other y = −1."""
    y = 1.0 if label == 1.0 else -1.0
    for q in range(diverged.shape[0]):
        fine = respond_single(value, slope, bound, z, q, y, u, t, diverged, loss_sum, losses)
        wrong = (float(z[q]) > 0.0) != (y > 0.0)
        error_count[q] += 1 if fine & wrong else 0


@register_jitable(forceinline=True)
def regression(value, slope, bound, z, u, outputs, label, t, diverged, loss_sum, error_count, losses=None):
    """One margin that predicts the label itself; no errors are counted."""
    for q in range(diverged.shape[0]):
        respond_single(value, slope, bound, z, q, label, u, t, diverged, loss_sum, losses)


@register_jitable(forceinline=True)
def respond_class(value, slope, bound, z, c, y, u, losses):
    """Slope and loss of column c, one class of a configuration; returns the loss and whether its margin is bounded."""
    margin = float(z[c])
    u[c] = slope(margin, y)
    loss = value(margin, y)
    if losses is not None:
        losses[c] = loss
    return loss, abs(margin) <= bound


@register_jitable(forceinline=True)
def one_vs_rest(value, slope, bound, z, u, outputs, label, t, diverged, loss_sum, error_count, losses=None):
    """One margin per class; the loss is the sum of the binary losses."""
    for q in range(diverged.shape[0]):
        first = q * outputs
        best = first
        loss = 0.0
        fine = diverged[q] == 0
        for c in range(first, first + outputs):
            y = 1.0 if label == c - first else -1.0
            own, bounded = respond_class(value, slope, bound, z, c, y, u, losses)
            fine = fine & bounded
            loss += own
            best = c if z[c] > z[best] else best
        if fine:
            loss_sum[q] += loss
            error_count[q] += best - first != label
        else:
            stop_learning(q, first, first + outputs, u, t, diverged, losses)


@register_jitable(forceinline=True)
def label_sets(value, slope, bound, z, u, outputs, label, t, diverged, loss_sum, error_count, losses=None):
    """One margin per class, and any number of classes per row: ``label[k]`` is 1 for those of the row.

    A class is predicted if its margin is positive; an error is a set that is not the true one.
    """
    for q in range(diverged.shape[0]):
        first = q * outputs
        loss, wrong = 0.0, False
        fine = diverged[q] == 0
        for c in range(first, first + outputs):
            y = 1.0 if label[c - first] == 1.0 else -1.0
            own, bounded = respond_class(value, slope, bound, z, c, y, u, losses)
            fine = fine & bounded
            loss += own
            wrong = wrong | ((z[c] > 0) != (y > 0.0))
        if fine:
            loss_sum[q] += loss
            error_count[q] += 1 if wrong else 0
        else:
            stop_learning(q, first, first + outputs, u, t, diverged, losses)


@register_jitable(forceinline=True)
def joint(value, slope, bound, z, u, outputs, label, t, diverged, loss_sum, error_count, losses=None):
    """One margin per class and one joint loss, whose `value` writes the slopes."""
    for q in range(diverged.shape[0]):
        first = q * outputs
        truth = first + int(label)
        best = first
        fine = diverged[q] == 0
        for c in range(first, first + outputs):
            fine = fine & (abs(float(z[c])) <= bound)
            best = c if z[c] > z[best] else best
        if fine:
            loss = value(z, u, first, first + outputs, truth)
            loss_sum[q] += loss
            if losses is not None:
                for c in range(first, first + outputs):
                    losses[c] = loss
            error_count[q] += best != truth
        else:
            stop_learning(q, first, first + outputs, u, t, diverged, losses)
