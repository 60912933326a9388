"""`mycc serve`: a package for text behind OpenAI's HTTP interface.

`service.py` runs an engine in a thread of its own, `requests.py` reads what clients ask for, `answers.py` spells what
they get, `app.py` connects them.
"""
