"""Graph passes: FX graph to FX graph, a file each; passes.py lists them in order."""
