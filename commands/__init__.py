"""The subcommands of `mycc`, a file each; cli.py is their list."""
