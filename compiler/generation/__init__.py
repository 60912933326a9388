"""From a folder of Hugging Face's form to a package that generates text."""
