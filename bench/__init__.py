"""The same workloads for Felice and for its peers, side by side in one run.

`python -m bench --help` lists them. Figures are ratios between systems that took
turns on one machine, medians of several turns; a lone absolute rate says little.
"""
