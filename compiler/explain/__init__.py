"""`mycc explain`: what became of a model, as JSON values (docs/explain.md) and as one HTML page.

A package is read without torch; only a model that is compiled first needs it.
"""
