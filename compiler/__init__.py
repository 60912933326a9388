"""Everything between a model and a package, in the order of the work:

capture -> graph passes -> lower -> schedule -> codegen -> build -> package

Needs torch; `pip install mycc[compiler]`. Importing this package itself imports nothing.
"""
