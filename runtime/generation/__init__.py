"""Text from a package that was compiled for text generation: tokens by numpy alone, texts by `tokenizers`.

`Model.generate` and its kin are the way in. `engine.py` runs texts through a package's entry points, `sampling.py`
chooses tokens, `stream.py` makes pieces of text of them.
"""
