#include "zip.h"

#include <algorithm>

#include "../base/errors.h"
#include "json.h"

namespace mycc::runtime {

namespace {

constexpr uint64_t kAlignment = 65536;
constexpr uint64_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20;
constexpr uint64_t kLongestComment = 128, kMaxMembers = 1 << 16;
constexpr uint32_t kMax32 = 0xFFFFFFFFu, kMax16 = 0xFFFFu;
constexpr uint16_t kUtf8Flag = 1 << 11, kZip64Field = 1, kPaddingField = 0x796D, kDeflated = 8;
// What mycc writes into every entry: made by Unix with version 4.5, on 1980-01-01, a regular file that all may read.
constexpr uint32_t kMadeBy = 3 << 8 | 45, kDate = 1 << 5 | 1, kAttributes = 0100644u << 16;
constexpr uint32_t kVersion = 20, kVersion64 = 45;

// Little-endian fields at any address.
uint64_t field(const uint8_t *p, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= uint64_t(p[i]) << (8 * i);
  return value;
}
uint32_t u16(const uint8_t *p) { return uint32_t(field(p, 2)); }
uint32_t u32(const uint8_t *p) { return uint32_t(field(p, 4)); }
uint64_t u64(const uint8_t *p) { return field(p, 8); }

bool all_zero(const uint8_t *p, uint64_t size) {
  for (uint64_t i = 0; i < size; ++i)
    if (p[i]) return false;
  return true;
}

// Rows for eight bytes at a time: row k advances a byte by k more zeros.
struct CrcTables {
  uint32_t rows[8][256] = {};
  constexpr CrcTables() {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ 0xEDB88320u : value >> 1;
      rows[0][i] = value;
    }
    for (int k = 1; k < 8; ++k)
      for (uint32_t i = 0; i < 256; ++i) rows[k][i] = rows[0][rows[k - 1][i] & 255] ^ rows[k - 1][i] >> 8;
  }
};

class Reader {
 public:
  Reader(const char *label, Archive *archive)
      : label_(label), archive_(*archive), data_(archive->data), size_(archive->size) {}

  int read() {
    if (int status = find_end()) return status;
    if (int status = find_end64()) return status;
    if (directory_ > end_ || end_ - directory_ != directory_size_) return damaged("its directory has a wrong size");
    if (count_ > directory_size_ / kCentralSize) return damaged("its directory is too short");
    if (count_ > kMaxMembers) return damaged("it has too many members");
    uint64_t position = directory_;
    for (uint64_t i = 0; i < count_; ++i) {
      archive_.listing = {reinterpret_cast<const char *>(data_ + directory_), size_t(position - directory_)};
      if (int status = read_entry(&position)) return status;
    }
    if (position != end_) return damaged("its directory has a wrong size");
    if (!padding(members_end_, directory_)) return damaged("there is foreign data before its directory");
    return sort_members();
  }

 private:
  int damaged(const char *why) {
    return fail(MYCC_ERROR_LOAD, "%s is not a whole mycc package: %s" MYCC_DAMAGED, label_, why);
  }
  int damaged(Span name, const char *why) {
    return fail(MYCC_ERROR_LOAD, "%s is not a whole mycc package: member %.*s %s" MYCC_DAMAGED, label_,
                MYCC_SPAN(name), why);
  }

  // The end record is the last thing in the file but for the short comment.
  int find_end() {
    if (size_ < kEndSize) return damaged("it is too short");
    uint64_t last = size_ - kEndSize, first = last > kLongestComment ? last - kLongestComment : 0;
    for (uint64_t at = last + 1; at-- > first;) {
      const uint8_t *p = data_ + at;
      if (u32(p) != 0x06054b50 || at + kEndSize + u16(p + 20) != size_) continue;
      if (u16(p + 4) || u16(p + 6) || u16(p + 8) != u16(p + 10)) return damaged("its end record is inconsistent");
      count_ = u16(p + 10), directory_size_ = u32(p + 12), directory_ = u32(p + 16), end_ = at;
      archive_.comment = {reinterpret_cast<const char *>(p + kEndSize), size_t(size_ - at - kEndSize)};
      return MYCC_OK;
    }
    return damaged("there is no zip directory at its end");
  }

  int find_end64() {
    if (count_ != kMax16 && directory_size_ != kMax32 && directory_ != kMax32) return MYCC_OK;
    if (end_ < kLocatorSize + kEnd64Size) return damaged("its zip64 record is missing");
    const uint8_t *locator = data_ + end_ - kLocatorSize, *p = locator - kEnd64Size;
    uint64_t at = uint64_t(p - data_);
    if (u32(locator) != 0x07064b50 || u32(locator + 4) || u64(locator + 8) != at || u32(locator + 16) != 1)
      return damaged("its zip64 locator is inconsistent");
    if (u32(p) != 0x06064b50 || u64(p + 4) != kEnd64Size - 12 || u16(p + 12) != kVersion64 ||
        u16(p + 14) != kVersion64 || u32(p + 16) || u32(p + 20) || u64(p + 24) != u64(p + 32))
      return damaged("its zip64 record is inconsistent");
    bool same = (count_ == kMax16 || count_ == u64(p + 32)) &&
                (directory_size_ == kMax32 || directory_size_ == u64(p + 40)) &&
                (directory_ == kMax32 || directory_ == u64(p + 48));
    if (!same) return damaged("its zip64 record is inconsistent");
    count_ = u64(p + 32), directory_size_ = u64(p + 40), directory_ = u64(p + 48), end_ = at;
    return MYCC_OK;
  }

  int read_entry(uint64_t *position) {
    if (end_ - *position < kCentralSize) return damaged("its directory is cut off");
    const uint8_t *p = data_ + *position;
    uint64_t name_size = u16(p + 28), extra_size = u16(p + 30);
    if (u32(p) != 0x02014b50 || u16(p + 32) || u16(p + 34) || u16(p + 36) || u16(p + 4) != kMadeBy || u16(p + 12) ||
        u16(p + 14) != kDate || u32(p + 38) != kAttributes)
      return damaged("its directory is inconsistent");
    if (end_ - *position - kCentralSize < name_size + extra_size) return damaged("its directory is cut off");
    Span name{reinterpret_cast<const char *>(p + kCentralSize), size_t(name_size)};
    if (name_size == 0 || memchr(name.data, 0, name.size) || !valid_utf8(name.data, name.size))
      return damaged("a member has no proper name");
    archive_.last = name, archive_.last_crc = u32(p + 16);
    *position += kCentralSize + name_size + extra_size;

    uint64_t packed = u32(p + 20), size = u32(p + 24), start = u32(p + 42);
    uint64_t *wide[] = {&size, &packed, &start};
    const bool large = size == kMax32 || packed == kMax32 || start == kMax32;
    if (!read_extra(p + kCentralSize + name_size, extra_size, wide, 3)) return damaged(name, "has a wrong extra field");
    if (u16(p + 6) != (large ? kVersion64 : kVersion)) return damaged(name, "has a wrong version");
    if (u16(p + 10) == kDeflated ? !name.starts_with("src/") : u16(p + 10) || packed != size)
      return damaged(name, "is compressed");
    if (u16(p + 8) != (ascii(name) ? 0 : kUtf8Flag)) return damaged(name, "has unknown flags");
    return read_local(p, name, start, packed, size);
  }

  // The local header at `start` has to say what the directory entry `p` says.
  int read_local(const uint8_t *p, Span name, uint64_t start, uint64_t packed, uint64_t size) {
    if (start < members_end_ || start > directory_ || directory_ - start < kLocalSize + name.size)
      return damaged(name, "lies outside of its place");
    const uint8_t *local = data_ + start;
    uint64_t name_size = u16(local + 26), extra_size = u16(local + 28);
    uint64_t local_packed = u32(local + 18), local_size = u32(local + 22);
    uint64_t header = kLocalSize + name_size + extra_size;
    if (u32(local) != 0x04034b50 || name_size != name.size || memcmp(local + 4, p + 6, 14) != 0 ||
        memcmp(local + kLocalSize, name.data, name.size) != 0)
      return damaged(name, "differs from its directory entry");
    if (directory_ - start < header || directory_ - start - header < packed) return damaged(name, "is cut off");
    uint64_t *wide[] = {&local_size, &local_packed};
    if (!read_extra(local + kLocalSize + name_size, extra_size, wide, 2))
      return damaged(name, "has a wrong extra field");
    if (local_size != size || local_packed != packed) return damaged(name, "differs from its directory entry");
    if (!padding(members_end_, start)) return damaged(name, "has foreign data before it");
    uint64_t offset = start + header;
    if (offset % kAlignment && (name.ends_with(".so") || name.ends_with(".safetensors")))
      return damaged(name, "is not aligned to 65536 bytes");
    members_end_ = offset + packed;
    if (!archive_.members.push({name, offset, packed})) return out_of_memory(sizeof(Member));
    return MYCC_OK;
  }

  static bool ascii(Span name) {
    for (size_t i = 0; i < name.size; ++i)
      if (name.data[i] & 0x80) return false;
    return true;
  }

  // Fills the values that 32 bits could not hold; the other extra field is padding and holds zeros.
  static bool read_extra(const uint8_t *p, uint64_t size, uint64_t **values, int count) {
    bool wide_seen = false;
    while (size >= 4) {
      uint64_t kind = u16(p), length = u16(p + 2);
      if (length > size - 4) return false;
      if (kind == kZip64Field) {
        if (wide_seen || !read_wide(p + 4, length, values, count)) return false;
        wide_seen = true;
      } else if (kind != kPaddingField || !all_zero(p + 4, length)) {
        return false;
      }
      p += 4 + length, size -= 4 + length;
    }
    if (!wide_seen)
      for (int i = 0; i < count; ++i)
        if (*values[i] == kMax32) return false;
    return size == 0;
  }
  static bool read_wide(const uint8_t *p, uint64_t length, uint64_t **values, int count) {
    for (int i = 0; i < count; ++i) {
      if (*values[i] != kMax32) continue;
      if (length < 8) return false;
      *values[i] = u64(p);
      p += 8, length -= 8;
    }
    return length == 0;
  }

  bool padding(uint64_t begin, uint64_t end) const {
    return end - begin < kAlignment && all_zero(data_ + begin, end - begin);
  }

  int sort_members() {
    Member *begin = archive_.members.begin(), *end = archive_.members.end();
    std::sort(begin, end, [](const Member &a, const Member &b) { return before(a.name, b.name); });
    for (Member *member = begin; member + 1 < end; ++member)
      if (member[0].name == member[1].name) return damaged(member->name, "is there twice");
    return MYCC_OK;
  }

  const char *label_;
  Archive &archive_;
  const uint8_t *data_;
  uint64_t size_;
  uint64_t count_ = 0, directory_ = 0, directory_size_ = 0, end_ = 0, members_end_ = 0;
};

}  // namespace

const Member *Archive::find(Span name) const {
  const Member *found = std::lower_bound(members.begin(), members.end(), name,
                                         [](const Member &member, Span other) { return before(member.name, other); });
  return found < members.end() && found->name == name ? found : nullptr;
}

uint32_t crc32(const uint8_t *data, uint64_t size) {
  static constexpr CrcTables kTables;
  uint32_t crc = ~0u;
  for (; size >= 8; data += 8, size -= 8) {
    const uint32_t low = u32(data) ^ crc, high = u32(data + 4);
    crc = kTables.rows[7][low & 255] ^ kTables.rows[6][low >> 8 & 255] ^ kTables.rows[5][low >> 16 & 255] ^
          kTables.rows[4][low >> 24] ^ kTables.rows[3][high & 255] ^ kTables.rows[2][high >> 8 & 255] ^
          kTables.rows[1][high >> 16 & 255] ^ kTables.rows[0][high >> 24];
  }
  for (; size; ++data, --size) crc = kTables.rows[0][(crc ^ *data) & 255] ^ crc >> 8;
  return ~crc;
}

int read_archive(const uint8_t *data, uint64_t size, const char *label, Archive *archive) {
  archive->data = data;
  archive->size = size;
  return Reader(label, archive).read();
}

}  // namespace mycc::runtime
