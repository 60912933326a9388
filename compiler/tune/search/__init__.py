"""The tuner: measures candidates on this machine; lock files keep what it chose."""
