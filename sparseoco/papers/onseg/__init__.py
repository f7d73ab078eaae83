"""The experiments of Liu et al. (2019), §4: online Newton steps with estimated gradients (ONSEG) and its peers."""
