"""Everything between a model and a package, in the order of the work:

capture -> graph passes -> lower -> schedule -> codegen -> build -> package

Needs torch: the extra `compiler`. Importing this package itself imports nothing.
"""
