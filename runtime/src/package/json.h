// json.h: a strict parser (RFC 8259) for the manifest: UTF-8 alone, and no key twice in an object. Numbers with a fraction
// are checked, but not converted. runtime/manifest.py takes and refuses the same texts.
#pragma once

#include "../base/memory.h"

namespace mycc::runtime {

enum class JsonKind : uint8_t { null, boolean, integer, real, string, array, object };

struct JsonValue {
  JsonKind kind = JsonKind::null;
  uint32_t next = 0;    // index of the next value of the same array or object; 0: the last
  uint32_t first = 0;   // index of the first child; 0: none
  uint32_t count = 0;   // children
  int64_t integer = 0;  // value of an integer or boolean; of a large object: where its children lie by key
  Span key;             // in an object
  Span text;            // of a string: decoded, and ended by NUL
};

// Whether the bytes are UTF-8 as RFC 3629 has it: shortest forms, no surrogates.
bool valid_utf8(const char *text, size_t size);

class Json {
 public:
  ~Json() { free(text_); }
  // Null on success, else what is wrong. The text is copied.
  const char *parse(const char *text, size_t size);

  const JsonValue &root() const { return values_[0]; }
  // Child of an object by key; NULL when it is not there or `object` is none.
  const JsonValue *get(const JsonValue *object, Span key) const;
  const JsonValue *get(const JsonValue *object, const char *key) const { return get(object, {key, strlen(key)}); }
  const JsonValue *first(const JsonValue *parent) const { return parent->first ? &values_[parent->first] : nullptr; }
  const JsonValue *next(const JsonValue *value) const { return value->next ? &values_[value->next] : nullptr; }

 private:
  const char *parse_value(uint32_t *index, int depth);
  const char *parse_children(uint32_t parent, char close, int depth);
  const char *check_keys(uint32_t object);
  const char *parse_string(Span *text);
  const char *parse_escape(char **out);
  bool parse_hex(uint32_t *code);
  const char *parse_number(JsonValue *value);
  const char *parse_word(const char *word);
  void skip_space();

  Array<JsonValue> values_;
  Array<uint32_t> by_key_;  // children of the large objects, each object's sorted by key
  char *text_ = nullptr, *at_ = nullptr, *end_ = nullptr;
};

}  // namespace mycc::runtime
