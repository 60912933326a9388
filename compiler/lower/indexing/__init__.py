"""Lowerings of views, gathers, scatters, sorts, searches and results whose size depends on values."""
