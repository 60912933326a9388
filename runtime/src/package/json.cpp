#include "json.h"

#include <algorithm>

namespace mycc::runtime {

namespace {
constexpr int kMaxDepth = 128;
constexpr size_t kMaxValues = 1 << 20, kMaxSize = size_t(1) << 28;
constexpr uint32_t kFewKeys = 8;  // of an object that is searched key by key
constexpr const char *kCutOff = "it ends too early", *kNoMemory = "out of memory";

bool digit(char c) { return c >= '0' && c <= '9'; }
}  // namespace

bool valid_utf8(const char *text, size_t size) {
  const uint8_t *p = reinterpret_cast<const uint8_t *>(text), *end = p + size;
  while (p < end) {
    uint64_t eight;
    if (end - p >= 8 && (memcpy(&eight, p, 8), (eight & 0x8080808080808080u) == 0)) {
      p += 8;
      continue;
    }
    const uint8_t lead = *p++;
    if (lead < 0x80) continue;
    const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || end - p < more) return false;
    const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (*p < low || *p > high) return false;
    for (int i = 1; i < more; ++i)
      if ((p[i] & 0xC0) != 0x80) return false;
    p += more;
  }
  return true;
}

const char *Json::parse(const char *text, size_t size) {
  if (size > kMaxSize) return "it is too large";
  if (!valid_utf8(text, size)) return "it is not UTF-8";
  text_ = static_cast<char *>(malloc(size + 1));
  if (!text_) return kNoMemory;
  memcpy(text_, text, size);
  text_[size] = 0;
  at_ = text_, end_ = text_ + size;
  uint32_t root;
  if (const char *error = parse_value(&root, 0)) return error;
  skip_space();
  return at_ == end_ ? nullptr : "there is text behind its end";
}

const JsonValue *Json::get(const JsonValue *object, Span key) const {
  if (!object || object->kind != JsonKind::object) return nullptr;
  if (object->count > kFewKeys) {
    const uint32_t *begin = &by_key_[size_t(object->integer)], *end = begin + object->count;
    const uint32_t *found =
        std::lower_bound(begin, end, key, [this](uint32_t i, const Span &k) { return before(values_[i].key, k); });
    return found < end && values_[*found].key == key ? &values_[*found] : nullptr;
  }
  for (const JsonValue *child = first(object); child; child = next(child))
    if (child->key == key) return child;
  return nullptr;
}

void Json::skip_space() {
  while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
}

const char *Json::parse_value(uint32_t *index, int depth) {
  if (depth > kMaxDepth) return "it is nested too deeply";
  if (values_.size() >= kMaxValues) return "it has too many values";
  *index = uint32_t(values_.size());
  if (!values_.push({})) return kNoMemory;
  skip_space();
  if (at_ == end_) return kCutOff;
  JsonValue &value = values_[*index];
  switch (*at_) {
    case '{':
      value.kind = JsonKind::object;
      return parse_children(*index, '}', depth);
    case '[':
      value.kind = JsonKind::array;
      return parse_children(*index, ']', depth);
    case '"':
      value.kind = JsonKind::string;
      return parse_string(&value.text);
    case 't':
      value.kind = JsonKind::boolean;
      value.integer = 1;
      return parse_word("true");
    case 'f':
      value.kind = JsonKind::boolean;
      return parse_word("false");
    case 'n':
      return parse_word("null");
    default:
      return parse_number(&value);
  }
}

// The values move when the array grows: they are named by index here.
const char *Json::parse_children(uint32_t parent, char close, int depth) {
  bool object = close == '}';
  uint32_t last = 0;
  ++at_;
  skip_space();
  if (at_ < end_ && *at_ == close) {
    ++at_;
    return nullptr;
  }
  for (;;) {
    Span key;
    if (object) {
      skip_space();
      if (const char *error = parse_string(&key)) return error;
      skip_space();
      if (at_ == end_ || *at_ != ':') return "a ':' is missing";
      ++at_;
    }
    uint32_t child;
    if (const char *error = parse_value(&child, depth + 1)) return error;
    values_[child].key = key;
    (last ? values_[last].next : values_[parent].first) = child;
    ++values_[parent].count;
    last = child;
    skip_space();
    if (at_ == end_) return kCutOff;
    char c = *at_++;
    if (c == close) return object ? check_keys(parent) : nullptr;
    if (c != ',') return "a ',' is missing";
  }
}

// No key is there twice; the children of a large object become searchable.
const char *Json::check_keys(uint32_t object) {
  constexpr const char *kTwice = "an object has a key twice";
  JsonValue &parent = values_[object];
  if (parent.count <= kFewKeys) {
    for (const JsonValue *a = first(&parent); a; a = next(a))
      for (const JsonValue *b = next(a); b; b = next(b))
        if (a->key == b->key) return kTwice;
    return nullptr;
  }
  const size_t start = by_key_.size();
  for (uint32_t i = parent.first; i; i = values_[i].next)
    if (!by_key_.push(i)) return kNoMemory;
  uint32_t *begin = &by_key_[start], *end = begin + parent.count;
  std::sort(begin, end, [this](uint32_t a, uint32_t b) { return before(values_[a].key, values_[b].key); });
  for (const uint32_t *i = begin; i + 1 < end; ++i)
    if (values_[i[0]].key == values_[i[1]].key) return kTwice;
  parent.integer = int64_t(start);
  return nullptr;
}

// Decodes in place: the text of a string is never longer than its source, and the NUL takes the place of a quote.
const char *Json::parse_string(Span *text) {
  if (at_ == end_ || *at_ != '"') return "a string is missing";
  char *out = ++at_;
  text->data = out;
  while (at_ < end_ && *at_ != '"') {
    if (static_cast<unsigned char>(*at_) < 0x20) return "a string has a control character";
    if (*at_ != '\\') {
      *out++ = *at_++;
    } else if (const char *error = parse_escape(&out)) {
      return error;
    }
  }
  if (at_ == end_) return kCutOff;
  ++at_;
  *out = 0;
  text->size = size_t(out - text->data);
  return nullptr;
}

const char *Json::parse_escape(char **out) {
  constexpr const char *kWrong = "a string has a wrong escape";
  if (end_ - at_ < 2) return kCutOff;
  char kind = at_[1];
  at_ += 2;
  if (kind != 'u') {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found = static_cast<const char *>(memchr(from, kind, sizeof from - 1));
    if (!found) return kWrong;
    *(*out)++ = to[found - from];
    return nullptr;
  }
  uint32_t code, low;
  if (!parse_hex(&code)) return kWrong;
  if (code >= 0xD800 && code < 0xDC00) {
    if (end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') return kWrong;
    at_ += 2;
    if (!parse_hex(&low) || low < 0xDC00 || low > 0xDFFF) return kWrong;
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code == 0 || (code >= 0xDC00 && code < 0xE000)) {
    return kWrong;  // NUL would cut C strings
  }
  char *p = *out;
  if (code < 0x80) {
    *p++ = char(code);
  } else if (code < 0x800) {
    *p++ = char(0xC0 | code >> 6), *p++ = char(0x80 | (code & 63));
  } else if (code < 0x10000) {
    *p++ = char(0xE0 | code >> 12), *p++ = char(0x80 | (code >> 6 & 63)), *p++ = char(0x80 | (code & 63));
  } else {
    *p++ = char(0xF0 | code >> 18), *p++ = char(0x80 | (code >> 12 & 63));
    *p++ = char(0x80 | (code >> 6 & 63)), *p++ = char(0x80 | (code & 63));
  }
  *out = p;
  return nullptr;
}

bool Json::parse_hex(uint32_t *code) {
  if (end_ - at_ < 4) return false;
  *code = 0;
  for (int i = 0; i < 4; ++i) {
    char c = *at_++;
    int value = digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (value < 0) return false;
    *code = *code << 4 | uint32_t(value);
  }
  return true;
}

const char *Json::parse_number(JsonValue *value) {
  constexpr const char *kWrong = "it has a wrong number";
  bool negative = *at_ == '-', exact = true;
  if (negative) ++at_;
  if (at_ != end_ && (*at_ == 'I' || *at_ == 'N')) return "it has Infinity or NaN for a number";
  if (at_ == end_ || !digit(*at_)) return kWrong;
  if (*at_ == '0' && at_ + 1 < end_ && digit(at_[1])) return kWrong;
  int64_t number = 0;
  for (; at_ < end_ && digit(*at_); ++at_) {
    int64_t step = *at_ - '0';
    exact = exact && !__builtin_mul_overflow(number, 10, &number) &&
            !__builtin_add_overflow(number, negative ? -step : step, &number);
  }
  if (at_ < end_ && *at_ == '.') {
    exact = false;
    if (++at_ == end_ || !digit(*at_)) return kWrong;
    while (at_ < end_ && digit(*at_)) ++at_;
  }
  if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
    exact = false;
    if (++at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
    if (at_ == end_ || !digit(*at_)) return kWrong;
    while (at_ < end_ && digit(*at_)) ++at_;
  }
  value->kind = exact ? JsonKind::integer : JsonKind::real;
  value->integer = exact ? number : 0;
  return nullptr;
}

const char *Json::parse_word(const char *word) {
  size_t length = strlen(word);
  if (size_t(end_ - at_) < length || memcmp(at_, word, length) != 0) return "it has an unknown word";
  at_ += length;
  return nullptr;
}

}  // namespace mycc::runtime
