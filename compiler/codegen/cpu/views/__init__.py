"""What the templates see: frozen values with finished text. Templates take no decisions."""
