#include "manifest.h"

#include <stdio.h>

#include "../base/errors.h"
#include "../cpu/pool.h"
#include "schema.h"
#include "sha256.h"
#include "../call/tensor.h"

namespace mycc::runtime {

namespace {

constexpr int64_t kFormat = 1;
constexpr const char *kManifest = "manifest.json";
constexpr uint64_t kDataAlignment = 64;

constexpr DtypeRow kDtypes[] = {
    {"bool", {6, 8, 1}}, {"u8", {1, 8, 1}},   {"i8", {0, 8, 1}},   {"i16", {0, 16, 1}}, {"i32", {0, 32, 1}},
    {"i64", {0, 64, 1}}, {"f16", {2, 16, 1}}, {"bf16", {4, 16, 1}}, {"f32", {2, 32, 1}}, {"f64", {2, 64, 1}},
    {"c64", {5, 64, 1}}, {"c128", {5, 128, 1}},
};
// Named in messages only: no package takes them yet.
constexpr DtypeRow kOtherDtypes[] = {
    {"u16", {1, 16, 1}}, {"u32", {1, 32, 1}}, {"u64", {1, 64, 1}}, {"c32", {5, 32, 1}},
};

class Reader {
 public:
  Reader(const Archive &archive, const char *label, Region *region, Json *json, Manifest *manifest)
      : archive_(archive), label_(label), region_(*region), json_(*json), manifest_(*manifest) {}

  // What check_form() has seen is not looked at again.
  int read(bool check_full) {
    if (int status = parse()) return status;
    if (int status = check_members()) return status;
    if (int status = read_weights(check_full)) return status;
    if (int status = read_targets()) return status;
    if (int status = read_state()) return status;
    if (int status = check_training(json_.get(&json_.root(), "training"))) return status;
    return read_entries();
  }

 private:
  int damaged(const char *why) { return fail(MYCC_ERROR_LOAD, "%s: manifest.json: %s" MYCC_DAMAGED, label_, why); }

  int newer(const char *what, Span found, int64_t known) {
    return fail(MYCC_ERROR_LOAD,
                "%s has %s %.*s; this mycc knows version %lld\n  Use the mycc that built it, or compile the model "
                "again with this one.",
                label_, what, MYCC_SPAN(found), static_cast<long long>(known));
  }

  // The archive comment is mycc:<format>:<sha256 of the manifest>.
  int parse() {
    Span comment = archive_.comment;
    if (!comment.starts_with("mycc:"))
      return fail(MYCC_ERROR_LOAD, "%s is a zip file, but not a mycc package" MYCC_DAMAGED, label_);
    const char *version = comment.data + 5, *end = comment.data + comment.size, *colon = version;
    while (colon < end && *colon >= '0' && *colon <= '9') ++colon;
    if (colon == end || colon == version || *colon != ':') return damaged("its hash is damaged");
    if (Span found{version, size_t(colon - version)}; found != "1") return newer("the package format", found, kFormat);
    const Member *member = archive_.find({kManifest, strlen(kManifest)});
    if (!member) return damaged("it is missing");
    const uint8_t *data = archive_.data + member->offset;
    if (!sha256_matches(data, member->size, {colon + 1, size_t(end - colon - 1)}))
      return damaged("it does not match its hash");
    if (const char *error = json_.parse(reinterpret_cast<const char *>(data), member->size)) return damaged(error);
    if (int status = check_version("format", "the package format", kFormat, kFormat)) return status;
    if (int status = check_version("abi", "the code interface", 1, MYCC_ABI_VERSION)) return status;
    Line problem;
    if (!check_form(json_, &problem)) return damaged(problem.text());
    if (int status = check_directory(data, member->size)) return status;
    int64_t threads = 0;
    const JsonValue *wanted = json_.get(&json_.root(), "threads");
    if (wanted && !integer_of(wanted, 0, INT32_MAX, &threads)) return damaged("its number of threads makes no sense");
    manifest_.threads = int32_t(threads);
    Span launch;
    if (text_of(json_.get(&json_.root(), "launch"), &launch)) manifest_.launch = launch.data;
    char *text = region_.array<char>(member->size + 1);
    if (!text) return out_of_memory(member->size);
    memcpy(text, data, member->size);
    manifest_.text = text;
    char *hash = region_.array<char>(size_t(end - colon));
    if (!hash) return out_of_memory(size_t(end - colon));
    memcpy(hash, colon + 1, size_t(end - colon - 1));
    manifest_.hash = hash;
    manifest_.name = json_.get(&json_.root(), "name")->text.data;
    Span contract;
    if (text_of(json_.get(&json_.root(), "contract"), &contract)) manifest_.contract = contract.data;
    return MYCC_OK;
  }

  // The zip fields that no loader needs: the checksums of the others' members, and of the manifest's own.
  int check_directory(const uint8_t *data, uint64_t size) {
    const JsonValue *hash = json_.get(&json_.root(), "directory");
    if (archive_.last != kManifest) return hash ? damaged("it is not the last member") : int(MYCC_OK);
    const Span listing = archive_.listing;
    if (hash && !sha256_matches(reinterpret_cast<const uint8_t *>(listing.data), listing.size, hash->text))
      return damaged("the zip directory does not match its hash");
    return archive_.last_crc == crc32(data, size) ? int(MYCC_OK) : damaged("it does not match its checksum");
  }

  int check_version(const char *key, const char *what, int64_t oldest, int64_t known) {
    const JsonValue *value = json_.get(&json_.root(), key);
    if (!value || value->kind != JsonKind::integer) return damaged("a version is missing");
    if (value->integer >= oldest && value->integer <= known) return MYCC_OK;
    char number[24];
    int length = snprintf(number, sizeof number, "%lld", static_cast<long long>(value->integer));
    return newer(what, {number, size_t(length)}, known);
  }

  // Every listed member is there with its hash, and every member but the manifest and the weights is listed.
  int check_members() {
    const JsonValue *listed = json_.get(&json_.root(), "members");
    const JsonValue *weights = json_.get(&json_.root(), "weights");
    manifest_.weights_member = json_.get(weights, "member")->text;
    for (const JsonValue *row = json_.first(listed); row; row = json_.next(row))
      if (int status = check_member(*row)) return status;
    for (const Member &member : archive_.members) {
      if (member.name == kManifest || member.name == manifest_.weights_member) continue;
      if (!json_.get(listed, member.name))
        return fail(MYCC_ERROR_LOAD, "%s: member %.*s is not listed in manifest.json" MYCC_DAMAGED, label_,
                    MYCC_SPAN(member.name));
    }
    return MYCC_OK;
  }

  int check_member(const JsonValue &row) {
    const Member *member = archive_.find(row.key);
    if (!member)
      return fail(MYCC_ERROR_LOAD, "%s: member %.*s is missing" MYCC_DAMAGED, label_, MYCC_SPAN(row.key));
    const uint64_t size = uint64_t(json_.get(&row, "size")->integer);
    if (size == member->size &&
        sha256_matches(archive_.data + member->offset, member->size, json_.get(&row, "sha256")->text))
      return MYCC_OK;
    return fail(MYCC_ERROR_LOAD, "%s: member %.*s does not match its hash" MYCC_DAMAGED, label_, MYCC_SPAN(row.key));
  }

  int read_weights(bool check_full) {
    const JsonValue *weights = json_.get(&json_.root(), "weights");
    const Member *member = archive_.find(manifest_.weights_member);
    if (!member)
      return fail(MYCC_ERROR_LOAD, "%s: member %.*s is missing" MYCC_DAMAGED, label_,
                  MYCC_SPAN(manifest_.weights_member));
    const JsonValue *hashes = json_.get(weights, "sha256");
    int64_t size, offset, block;
    if (!integer_of(json_.get(weights, "size"), 8, INT64_MAX, &size) || uint64_t(size) != member->size ||
        !integer_of(json_.get(weights, "data_offset"), 8, size, &offset) || offset % kDataAlignment ||
        !integer_of(json_.get(weights, "block"), 1, INT64_MAX, &block) ||
        hashes->count != (uint64_t(size) - 1) / uint64_t(block) + 1)
      return damaged("the weights do not fit their description");
    const uint8_t *data = archive_.data + member->offset;
    uint64_t header = 0;
    for (int i = 0; i < 8; ++i) header |= uint64_t(data[i]) << (8 * i);
    if (header != uint64_t(offset) - 8)
      return fail(MYCC_ERROR_LOAD, "%s: the header of %.*s has a wrong size" MYCC_DAMAGED, label_,
                  MYCC_SPAN(manifest_.weights_member));
    manifest_.weights_offset = member->offset + uint64_t(offset);
    manifest_.weights_header = offset, manifest_.weights_bytes = size - offset;
    return check_full ? check_blocks(*member, *hashes, uint64_t(block)) : MYCC_OK;
  }

  struct Blocks {
    const uint8_t *data;
    uint64_t size, block;
    const Span *hashes;
    std::atomic<int64_t> wrong;  // the first block that differs; -1: none
  };

  static void hash_blocks(void *argument, int64_t begin, int64_t end, int32_t) {
    Blocks &blocks = *static_cast<Blocks *>(argument);
    for (int64_t i = begin; i < end; ++i) {
      uint64_t start = uint64_t(i) * blocks.block, left = blocks.size - start;
      if (sha256_matches(blocks.data + start, left < blocks.block ? left : blocks.block, blocks.hashes[i])) continue;
      int64_t found = blocks.wrong.load();
      while ((found < 0 || i < found) && !blocks.wrong.compare_exchange_weak(found, i)) {
      }
    }
  }

  int check_blocks(const Member &member, const JsonValue &hashes, uint64_t block) {
    Span *expected = region_.array<Span>(hashes.count);
    if (!expected) return out_of_memory(hashes.count * sizeof(Span));
    int64_t count = 0;
    for (const JsonValue *hash = json_.first(&hashes); hash; hash = json_.next(hash)) expected[count++] = hash->text;
    Blocks blocks{archive_.data + member.offset, member.size, block, expected, {-1}};
    {
      CallInFlight call(available_threads());
      call.parallel_for(count, 1, hash_blocks, &blocks);
    }
    int64_t wrong = blocks.wrong.load();
    if (wrong < 0) return MYCC_OK;
    uint64_t start = uint64_t(wrong) * block, end = start + block < member.size ? start + block : member.size;
    return fail(MYCC_ERROR_LOAD,
                "%s: block %lld of %.*s (bytes %llu to %llu) does not match its hash" MYCC_DAMAGED, label_,
                static_cast<long long>(wrong), MYCC_SPAN(member.name), static_cast<unsigned long long>(start),
                static_cast<unsigned long long>(end));
  }

  int read_targets() {
    const JsonValue *rows = json_.get(&json_.root(), "targets");
    manifest_.targets = region_.array<TargetInfo>(rows->count);
    if (!manifest_.targets) return out_of_memory(rows->count * sizeof(TargetInfo));
    for (const JsonValue *row = json_.first(rows); row; row = json_.next(row)) {
      TargetInfo &target = manifest_.targets[manifest_.n_targets++];
      const Span name = json_.get(row, "target")->text;
      target.isa = json_.get(row, "isa")->text, target.library = json_.get(row, "library")->text;
      if (!archive_.find(target.library)) return damaged("the code of a target is missing");
      target.name = name.data;
      target.gpu = name.starts_with("cuda:");
      text_of(json_.get(row, "arch"), &target.arch);
      if (target.gpu && (!text_of(json_.get(row, "images"), &target.images) || !archive_.find(target.images)))
        return damaged("a target has no kernels");
    }
    return MYCC_OK;
  }

  int read_state() {
    const JsonValue *rows = json_.get(&json_.root(), "state");
    if (!rows) return MYCC_OK;
    mycc_port *ports;
    int32_t dims = 0;
    if (int status = read_ports(rows, &ports, &manifest_.n_state, &dims)) return status;
    manifest_.state = region_.array<StateInfo>(rows->count);
    if (!manifest_.state) return out_of_memory(rows->count * sizeof(StateInfo));
    const Member *weights = archive_.find(manifest_.weights_member);
    const int64_t data = int64_t(weights->offset + weights->size - manifest_.weights_offset);
    StateInfo *info = manifest_.state;
    for (const JsonValue *row = json_.first(rows); row; row = json_.next(row), ++info) {
      info->port = *ports++;
      const JsonValue *shape = json_.get(row, "shape");
      int32_t d = 0;
      for (const JsonValue *size = json_.first(shape); size; size = json_.next(size), ++d)
        info->shape[d] = size->integer;
      if (!dense_bytes(info->shape, info->port.ndim, dtype_bytes(info->port.dtype), &info->bytes))
        return damaged("a tensor of the state is too large");
      const JsonValue *offset = json_.get(row, "offset");
      info->offset = -1;
      if (offset && (!integer_of(offset, 0, data, &info->offset) || info->bytes > data - info->offset))
        return damaged("the first value of a tensor of the state is missing");
    }
    return MYCC_OK;
  }

  // Each parameter is of a group; a number has one value, or one for each group. A package that never updates its
  // parameters has them as constants, not in its state.
  int check_training(const JsonValue *row) {
    if (!row) return MYCC_OK;
    const int64_t groups = json_.get(row, "groups")->integer;
    const JsonValue *parameters = json_.get(row, "parameters"), *hyper = json_.get(row, "hyper");
    for (const JsonValue *p = json_.first(parameters); p; p = json_.next(p))
      if (json_.get(p, "group")->integer >= groups) return damaged("what is trained makes no sense");
    for (const JsonValue *value = json_.first(hyper); value; value = json_.next(value))
      if (value->kind == JsonKind::array && int64_t(value->count) != groups)
        return damaged("a number of the optimizer is not there for each group");
    return MYCC_OK;
  }

  int read_entries() {
    const JsonValue *rows = json_.get(&json_.root(), "entry_points");
    manifest_.entries = region_.array<EntryInfo>(rows->count);
    if (!manifest_.entries) return out_of_memory(rows->count * sizeof(EntryInfo));
    for (const JsonValue *row = json_.first(rows); row; row = json_.next(row), ++manifest_.n_entries)
      if (int status = read_entry(row, &manifest_.entries[manifest_.n_entries])) return status;
    int32_t number = 0;
    for (const JsonValue *row = json_.first(rows); row; row = json_.next(row), ++number)
      if (const JsonValue *general = json_.get(row, "variant_of"))
        if (int status = read_variant(*general, json_.get(row, "fixed"), number)) return status;
    return MYCC_OK;
  }

  EntryInfo *find_entry(Span name) {
    for (int32_t i = 0; i < manifest_.n_entries; ++i)
      if (name == manifest_.entries[i].name) return &manifest_.entries[i];
    return nullptr;
  }

  // A variant has the symbols of its general entry point that are not fixed, in the same order.
  int read_variant(const JsonValue &name, const JsonValue *sizes, int32_t number) {
    Span text;
    EntryInfo *general = text_of(&name, &text) ? find_entry(text) : nullptr;
    const EntryInfo &own = manifest_.entries[number];
    if (!general || general == &own || !sizes || general->n_inputs != own.n_inputs ||
        general->n_outputs != own.n_outputs)
      return damaged("a variant is incomplete");
    if (!general->variants) general->variants = region_.array<VariantInfo>(size_t(manifest_.n_entries));
    int64_t *fixed = region_.array<int64_t>(size_t(general->n_symbols));
    if (!general->variants || !fixed) return out_of_memory(size_t(manifest_.n_entries) * sizeof(VariantInfo));
    int32_t free_symbols = 0;
    for (int32_t i = 0; i < general->n_symbols; ++i) {
      const char *symbol = general->symbols[i].named.name;
      const JsonValue *size = json_.get(sizes, symbol);
      fixed[i] = kFree;
      if (size && !integer_of(size, 0, INT64_MAX, &fixed[i])) return damaged("a variant's size makes no sense");
      if (size) continue;
      if (free_symbols == own.n_symbols || strcmp(own.symbols[free_symbols].named.name, symbol) != 0)
        return damaged("a variant has other sizes than its entry point");
      free_symbols += 1;
    }
    if (free_symbols != own.n_symbols) return damaged("a variant has other sizes than its entry point");
    general->variants[general->n_variants++] = {number, fixed};
    return MYCC_OK;
  }

  int read_entry(const JsonValue *row, EntryInfo *entry) {
    const Span name = json_.get(row, "name")->text;
    if (find_entry(name)) return damaged("two entry points have one name");
    entry->name = name.data;
    int status = read_ports(json_.get(row, "inputs"), &entry->inputs, &entry->n_inputs, &entry->input_dims);
    if (status) return status;
    status = read_ports(json_.get(row, "outputs"), &entry->outputs, &entry->n_outputs, &entry->output_dims);
    if (status) return status;
    entry->n_kernels = int32_t(json_.get(row, "kernels")->count);
    status = read_numbers(json_.get(row, "state"), manifest_.n_state, &entry->state, &entry->n_state);
    if (status) return status;
    status = read_numbers(json_.get(row, "changes"), manifest_.n_state, &entry->changes, &entry->n_changes);
    if (status) return status;
    status = read_numbers(json_.get(row, "writes"), entry->n_inputs, &entry->writes, &entry->n_writes);
    if (status) return status;
    return read_symbols(json_.get(row, "symbols"), entry);
  }

  // Numbers below `end`; none where there is no list.
  int read_numbers(const JsonValue *rows, int32_t end, int32_t **numbers, int32_t *count) {
    if (!rows) return MYCC_OK;
    *numbers = region_.array<int32_t>(rows->count);
    if (!*numbers) return out_of_memory(rows->count * sizeof(int32_t));
    for (const JsonValue *row = json_.first(rows); row; row = json_.next(row)) {
      int64_t number;
      if (!integer_of(row, 0, int64_t(end) - 1, &number)) return damaged("what a call changes makes no sense");
      (*numbers)[(*count)++] = int32_t(number);
    }
    return MYCC_OK;
  }

  int read_ports(const JsonValue *rows, mycc_port **ports, int32_t *count, int32_t *total) {
    *ports = region_.array<mycc_port>(rows->count);
    if (!*ports) return out_of_memory(rows->count * sizeof(mycc_port));
    for (const JsonValue *row = json_.first(rows); row; row = json_.next(row)) {
      mycc_port &port = (*ports)[(*count)++];
      port.name = json_.get(row, "name")->text.data;
      port.dtype = dtype_by_name(json_.get(row, "dtype")->text)->dtype;
      if (int status = read_dims(json_.get(row, "shape"), &port)) return status;
      *total += port.ndim;
    }
    return MYCC_OK;
  }

  int read_dims(const JsonValue *rows, mycc_port *port) {
    const char **dims = region_.array<const char *>(rows->count);
    if (!dims) return out_of_memory(rows->count * sizeof(char *));
    port->dims = dims;
    for (const JsonValue *row = json_.first(rows); row; row = json_.next(row)) {
      const char *dim = row->text.data;
      if (row->kind == JsonKind::integer) {
        char *number = region_.array<char>(24);
        if (!number) return out_of_memory(24);
        snprintf(number, 24, "%lld", static_cast<long long>(row->integer));
        dim = number;
      }
      dims[port->ndim++] = dim;
    }
    return MYCC_OK;
  }

  int read_symbols(const JsonValue *rows, EntryInfo *entry) {
    entry->symbols = region_.array<SizeSymbol>(rows->count);
    if (!entry->symbols) return out_of_memory(rows->count * sizeof(SizeSymbol));
    for (const JsonValue *row = json_.first(rows); row; row = json_.next(row)) {
      SizeSymbol &symbol = entry->symbols[entry->n_symbols++];
      int64_t input, dim;
      constexpr int64_t kMax = int64_t(1) << 48;
      if (!integer_of(json_.get(row, "min"), 0, INT64_MAX, &symbol.named.min) ||
          !integer_of(json_.get(row, "max"), symbol.named.min, INT64_MAX, &symbol.named.max) ||
          !integer_of(json_.get(row, "input"), 0, int64_t(entry->n_inputs) - 1, &input) ||
          !integer_of(json_.get(row, "dim"), 0, int64_t(entry->inputs[input].ndim) - 1, &dim) ||
          !integer_of(json_.get(row, "scale"), 1, kMax, &symbol.scale) ||
          !integer_of(json_.get(row, "offset"), -kMax, kMax, &symbol.offset))
        return damaged("a size symbol makes no sense");
      symbol.named.name = json_.get(row, "name")->text.data;
      symbol.input = int32_t(input), symbol.dim = int32_t(dim);
    }
    return MYCC_OK;
  }

  static bool text_of(const JsonValue *value, Span *text) {
    if (!value || value->kind != JsonKind::string || value->text.size == 0) return false;
    *text = value->text;
    return true;
  }
  static bool integer_of(const JsonValue *value, int64_t min, int64_t max, int64_t *number) {
    *number = 0;
    if (!value || value->kind != JsonKind::integer || value->integer < min || value->integer > max) return false;
    *number = value->integer;
    return true;
  }

  const Archive &archive_;
  const char *label_;
  Region &region_;
  Json &json_;
  Manifest &manifest_;
};

}  // namespace

const DtypeRow *dtype_by_name(Span name) {
  for (const DtypeRow &row : kDtypes)
    if (name == row.name) return &row;
  return nullptr;
}

const char *dtype_name(mycc_dtype dtype) {
  for (const DtypeRow &row : kDtypes)
    if (same_dtype(row.dtype, dtype)) return row.name;
  for (const DtypeRow &row : kOtherDtypes)
    if (same_dtype(row.dtype, dtype)) return row.name;
  return "unknown";
}

int read_manifest(const Archive &archive, const char *label, bool check_full, Region *region, Json *json,
                  Manifest *manifest) {
  return Reader(archive, label, region, json, manifest).read(check_full);
}

}  // namespace mycc::runtime
