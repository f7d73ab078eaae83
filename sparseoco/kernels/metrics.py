"""Loops over predictions: sums of metrics, probabilities, and ranking curves.

Each row's terms are added in the order of the rows. Margins are (rows, configurations, outputs). Sums do not depend on
which configurations are scored together.
"""

import math

import numpy as np

from sparseoco.core.compile_cache import compiled, register_jitable
from sparseoco.learners.losses import logistic_value
from sparseoco.learners.numerics import exp_of_negative


@register_jitable
def log_sum_exp(values):
    """log Σ_k exp(v_k)."""
    largest = values[0]
    for value in values:
        largest = max(largest, value)
    if not math.isfinite(largest):
        return largest
    total = 0.0
    for value in values:
        total += exp_of_negative(value - largest)
    return largest + math.log(total)


@register_jitable
def log_terms(margins, joint, out):
    """Unnormalised log-probabilities of the classes: margins of a joint loss, else log σ(z_k)."""
    for k in range(margins.shape[0]):
        z = float(margins[k])
        out[k] = z if joint else -logistic_value(z, 1.0)


@compiled
def add_binary(margins, labels, log_loss, counts):
    """Add −log of the probability of each row's class, p = σ(z), and per class rows (0), predicted (1), correct (2)."""
    for i in range(margins.shape[0]):
        truth = 1 if labels[i] == 1.0 else 0
        for q in range(margins.shape[1]):
            z = float(margins[i, q, 0])
            predicted = 1 if z > 0.0 else 0
            log_loss[q] += logistic_value(z, 1.0 if truth == 1 else -1.0)
            counts[q, 0, truth] += 1
            counts[q, 1, predicted] += 1
            counts[q, 2, truth] += predicted == truth


@compiled
def add_classes(margins, labels, joint, log_loss, counts):
    """As `add_binary` for more classes: the class of the largest margin is predicted, the first on ties."""
    terms = np.empty(margins.shape[2])
    for i in range(margins.shape[0]):
        truth = int(labels[i])
        for q in range(margins.shape[1]):
            own = margins[i, q]
            predicted = 0
            for k in range(1, own.shape[0]):
                predicted = k if own[k] > own[predicted] else predicted
            log_terms(own, joint, terms)
            log_loss[q] += log_sum_exp(terms) - terms[truth]
            counts[q, 0, truth] += 1
            counts[q, 1, predicted] += 1
            counts[q, 2, truth] += predicted == truth


@compiled
def add_label_sets(margins, indicator, log_loss, counts, wrong):
    """As `add_binary` for every class on its own, and `wrong`: rows whose predicted set is not the true one; its last
    entry counts the rows whose set is not empty."""
    for i in range(margins.shape[0]):
        some = False
        for k in range(margins.shape[2]):
            some = some or indicator[i, k] != 0
        wrong[-1] += some
        for q in range(margins.shape[1]):
            exact = True
            for k in range(margins.shape[2]):
                z = float(margins[i, q, k])
                truth, predicted = indicator[i, k] != 0, z > 0.0
                log_loss[q] += logistic_value(z, 1.0 if truth else -1.0)
                counts[q, 0, k] += truth
                counts[q, 1, k] += predicted
                counts[q, 2, k] += truth and predicted
                exact = exact and truth == predicted
            wrong[q] += not exact


@compiled
def add_numbers(margins, targets, absolute, squares, moments):
    """Add |z − y| and (z − y)²; `moments` are rows, mean and Σ(y − mean)² of the targets (Welford's update)."""
    for i in range(margins.shape[0]):
        y = float(targets[i])
        moments[0] += 1.0
        delta = y - moments[1]
        moments[1] += delta / moments[0]
        moments[2] += delta * (y - moments[1])
        for q in range(margins.shape[1]):
            residual = float(margins[i, q, 0]) - y
            absolute[q] += abs(residual)
            squares[q] += residual * residual


@compiled
def joint_scores(margins, out):
    """log p_k − log(1 − p_k) of the softmax probabilities, which ranks rows as p_k does, without saturation."""
    outputs = margins.shape[2]
    others = np.empty(outputs - 1)
    terms = np.empty(outputs)
    for i in range(margins.shape[0]):
        for q in range(margins.shape[1]):
            best = 0
            for k in range(outputs):
                terms[k] = float(margins[i, q, k])
                best = k if terms[k] > terms[best] else best
            total = log_sum_exp(terms)
            for k in range(outputs):
                if k == best:  # p_k may round to 1: sum the other classes
                    for other in range(outputs - 1):
                        others[other] = terms[other + (other >= best)]
                    out[i, q, k] = terms[k] - log_sum_exp(others)
                else:
                    low = terms[k] - total
                    out[i, q, k] = low - math.log1p(-math.exp(low))


@compiled
def fill_probabilities(margins, joint, out):
    """p_k: softmax of a joint loss, else σ(z_k) / Σ σ(z)."""
    terms = np.empty(margins.shape[2])
    for i in range(margins.shape[0]):
        for q in range(margins.shape[1]):
            log_terms(margins[i, q], joint, terms)
            total = log_sum_exp(terms)
            for k in range(terms.shape[0]):
                out[i, q, k] = math.exp(terms[k] - total)


@compiled
def add_to_histograms(scores, truths, histograms):
    """Count scores in bins of z/(1 + |z|); `truths` (rows, outputs) is 1 for positives.

    `histograms` is (configurations, outputs, 2, bins), negatives first.
    """
    bins = histograms.shape[3]
    for i in range(scores.shape[0]):
        for q in range(scores.shape[1]):
            for k in range(scores.shape[2]):
                z = float(scores[i, q, k])
                b = int((z / (1.0 + abs(z)) + 1.0) * 0.5 * bins) if math.isfinite(z) else (bins - 1 if z > 0 else 0)
                histograms[q, k, int(truths[i, k]), min(b, bins - 1)] += 1
