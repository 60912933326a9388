"""Rules: linear algebra."""
