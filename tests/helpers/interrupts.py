"""Processes that tests interrupt."""

#: in front of a program that gets SIGINT: what a shell starts in the background ignores it, and so do its children
INTERRUPTIBLE = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
