"""Choices for kernels: what the cost model leaves open, measured on this machine (`--tune`) or read from a lock file.

    keys       which kernels may have a choice, and the text that names one     keys.py
    choices    frozen values that lowering and code generation read             choices.py
    space      the parameters of each family of kernels and values to try       space.py
    search     builds the candidates, times them in turns, keeps the best       search.py
    lock       choices and times in a file beside the package                   lock.py

A parameter that no choice names has the cost model's value.
"""
