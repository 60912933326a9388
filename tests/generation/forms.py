"""A form of texts, and how they are drawn."""

SCHEMA = {
    "x-guidance": {"whitespace_pattern": " ?"},  # as many spaces as the random model likes would not fit the cache
    "type": "object", "additionalProperties": False, "required": ["name", "age", "tags"],
    "properties": {
        "name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["x", "yy"]}, "minItems": 1, "maxItems": 2},
    },
}  # fmt: skip
DRAWN = {"max_new_tokens": 90, "temperature": 1.0}
