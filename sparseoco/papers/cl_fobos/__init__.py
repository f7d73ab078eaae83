"""The experiments of Togari and Yamashita (2016), §5: component-wise against common lazy evaluation of FOBOS."""
