#include "schema.h"

#include "manifest.h"

namespace mycc::runtime {

namespace {

enum class Kind : uint8_t { any, text, name, dtype, version, whole, natural, size, number, flag, scalar, setting, dimension,
                            formula,
                            list, map, record, tree };

struct Field;

// A type: of a list or map the type of its elements, of a record its fields. A list has `least` to `most` elements.
struct Type {
  Kind kind;
  const Type *of = nullptr;
  const Field *fields = nullptr;
  uint32_t count = 0;
  uint32_t least = 0, most = UINT32_MAX;
};

struct Field {
  const char *key;
  const Type *type;
  bool needed = true;
};

constexpr bool kOptional = false;
constexpr uint32_t kMaxTensors = 4096, kMaxEntries = 4096, kMaxSymbols = 1024;

template <uint32_t n>
constexpr Type record(const Field (&fields)[n]) {
  return {Kind::record, nullptr, fields, n};
}
constexpr Type list(const Type &of, uint32_t least = 0, uint32_t most = UINT32_MAX) {
  return {Kind::list, &of, nullptr, 0, least, most};
}
constexpr Type map(const Type &of) { return {Kind::map, &of}; }

constexpr Type kText{Kind::text}, kName{Kind::name}, kDtype{Kind::dtype}, kVersion{Kind::version}, kWhole{Kind::whole},
    kNatural{Kind::natural}, kSize{Kind::size}, kNumber{Kind::number}, kFlag{Kind::flag}, kScalar{Kind::scalar},
    kSetting{Kind::setting}, kDimension{Kind::dimension}, kFormula{Kind::formula}, kAny{Kind::any}, kTree{Kind::tree};
constexpr Type kTexts = list(kText), kNumbers = list(kNumber), kFormulas = list(kFormula), kNaturals = map(kNatural),
               kTextsByName = map(kText), kScalars = map(kScalar), kSlots = list(kNatural, 0, kMaxTensors);

constexpr Type kShape = list(kDimension, 0, MYCC_MAX_RANK);
constexpr Field kPortFields[] = {{"name", &kName}, {"dtype", &kDtype}, {"shape", &kShape}};
constexpr Type kPort = record(kPortFields), kPorts = list(kPort, 0, kMaxTensors);

constexpr Type kFixedShape = list(kNatural, 0, MYCC_MAX_RANK);
constexpr Field kStateFields[] = {
    {"name", &kName}, {"dtype", &kDtype}, {"shape", &kFixedShape}, {"offset", &kNatural, kOptional}};
constexpr Type kStateRow = record(kStateFields), kState = list(kStateRow, 0, kMaxTensors);

constexpr Field kSymbolFields[] = {{"name", &kName},    {"min", &kNatural},   {"max", &kNatural}, {"input", &kNatural},
                                   {"dim", &kNatural}, {"scale", &kNatural}, {"offset", &kWhole}};
constexpr Type kSymbol = record(kSymbolFields), kSymbols = list(kSymbol, 0, kMaxSymbols);

constexpr Field kComputedFields[] = {
    {"name", &kName}, {"min", &kSize}, {"max", &kSize}, {"where", &kText, kOptional}};
constexpr Type kComputedRow = record(kComputedFields), kComputed = list(kComputedRow, 0, kMaxSymbols);

#define MYCC_KERNEL_FIELDS                                                                                        \
  {"name", &kName}, {"kind", &kText}, {"ops", &kTexts}, {"sources", &kTexts}, {"key", &kText, kOptional},         \
      {"flops", &kFormula, kOptional}, {"bytes", &kFormula, kOptional}, {"writes", &kFormula, kOptional},         \
      {"weights", &kFormula, kOptional}, {"buffers", &kTexts, kOptional}
constexpr Field kKernelFields[] = {MYCC_KERNEL_FIELDS};
constexpr Type kKernel = record(kKernelFields), kKernels = list(kKernel);
constexpr Field kLaunchFields[] = {MYCC_KERNEL_FIELDS,       {"node", &kNatural},   {"grid", &kFormulas},
                                   {"threads", &kNatural},   {"shared", &kNatural}, {"registers", &kNatural},
                                   {"spills", &kNatural},    {"accesses", &kNaturals}};
constexpr Type kLaunch = record(kLaunchFields), kLaunchList = list(kLaunch), kLaunches = map(kLaunchList);

constexpr Field kFusionFields[] = {
    {"producer", &kText}, {"consumer", &kText}, {"done", &kFlag}, {"reason", &kText, kOptional}};
constexpr Type kFusion = record(kFusionFields), kFusions = list(kFusion);
constexpr Field kMemoryFields[] = {{"buffers", &kNatural, kOptional},
                                   {"arena", &kNatural, kOptional},
                                   {"live", &kNatural, kOptional},
                                   {"dynamic", &kFlag, kOptional}};
constexpr Type kMemory = record(kMemoryFields);

constexpr Field kEntryFields[] = {{"name", &kName},
                                  {"inputs", &kPorts},
                                  {"outputs", &kPorts},
                                  {"symbols", &kSymbols},
                                  {"computed", &kComputed, kOptional},
                                  {"variant_of", &kName, kOptional},
                                  {"fixed", &kNaturals, kOptional},
                                  {"state", &kSlots, kOptional},
                                  {"changes", &kSlots, kOptional},
                                  {"writes", &kSlots, kOptional},
                                  {"in_tree", &kTree},
                                  {"out_tree", &kTree},
                                  {"kernels", &kKernels},
                                  {"launches", &kLaunches, kOptional},
                                  {"fusions", &kFusions},
                                  {"memory", &kMemory}};
constexpr Type kEntry = record(kEntryFields), kEntries = list(kEntry, 1, kMaxEntries);

constexpr Field kRoofFields[] = {{"sms", &kNumber}, {"tflops", &kNumber}, {"tbytes", &kNumber}};
constexpr Type kRoof = record(kRoofFields);
constexpr Field kTargetFields[] = {{"target", &kName},           {"isa", &kName},           {"library", &kName},
                                   {"loader", &kText},           {"glibc", &kVersion},      {"family", &kText, kOptional},
                                   {"arch", &kText, kOptional},  {"images", &kText, kOptional},
                                   {"roof", &kRoof, kOptional}};
constexpr Type kTarget = record(kTargetFields), kTargets = list(kTarget, 1, kMaxEntries);

constexpr Field kMemberFields[] = {{"size", &kNatural}, {"sha256", &kName}};
constexpr Type kMember = record(kMemberFields), kMembers = map(kMember);

constexpr Type kHashes = list(kName), kRange = list(kNatural, 2, 2);
constexpr Field kWeightFields[] = {{"member", &kName}, {"size", &kNatural},  {"data_offset", &kNatural},
                                   {"block", &kNatural}, {"sha256", &kHashes}, {"device", &kRange, kOptional}};
constexpr Type kWeights = record(kWeightFields);

constexpr Field kCheckFields[] = {{"error", &kNumbers, kOptional},
                                  {"eager", &kNumbers, kOptional},
                                  {"shapes", &kAny, kOptional},
                                  {"certificate", &kName, kOptional}};
constexpr Type kCheck = record(kCheckFields);

constexpr Type kChoices = map(kScalars), kTuned = map(kChoices);
constexpr Field kTuningFields[] = {{"machine", &kScalars}, {"threads", &kNatural}, {"targets", &kTuned}};
constexpr Type kTuning = record(kTuningFields);

constexpr Field kTrainedFields[] = {{"name", &kName}, {"group", &kNatural}};
constexpr Type kTrainedRow = record(kTrainedFields), kTrained = list(kTrainedRow, 1, kMaxTensors);
constexpr Type kSettings = map(kSetting), kNames = map(kName);
constexpr Field kTrainingFields[] = {{"optimizer", &kName},
                                     {"hyper", &kSettings},
                                     {"groups", &kNatural},
                                     {"parameters", &kTrained},
                                     {"aliases", &kNames, kOptional},
                                     {"check_finite", &kFlag, kOptional},
                                     {"memory_budget", &kNumber, kOptional}};
constexpr Type kTraining = record(kTrainingFields);

constexpr Field kManifestFields[] = {{"format", &kWhole},
                                     {"abi", &kWhole},
                                     {"name", &kName},
                                     {"versions", &kTextsByName},
                                     {"threads", &kNatural, kOptional},
                                     {"launch", &kName, kOptional},
                                     {"entry_points", &kEntries},
                                     {"state", &kState, kOptional},
                                     {"targets", &kTargets},
                                     {"python", &kTextsByName},
                                     {"members", &kMembers},
                                     {"weights", &kWeights},
                                     {"contract", &kName, kOptional},
                                     {"directory", &kName, kOptional},
                                     {"check", &kCheck},
                                     {"tuning", &kTuning, kOptional},
                                     {"training", &kTraining, kOptional}};
constexpr Type kManifest = record(kManifestFields);

// ---- structures of arguments and results

constexpr const char *kTags[] = {"tuple", "list", "dict", "namedtuple", "object", "scalar", "none", "const", "text", "real"};

class Trees {
 public:
  explicit Trees(const Json &json) : json_(json) {}

  // Whether `tree` is one, and how many tensors it has.
  bool check(const JsonValue *tree, bool result, int64_t *tensors) const {
    if (!tree) return false;
    if (tree->kind == JsonKind::string) return tree->text == "*" && ++*tensors;
    Span tag;
    const JsonValue *value = tagged(tree, &tag);
    if (!value) return false;
    if (tag == "tuple" || tag == "list") return check_list(value, result, tensors);
    if (tag == "dict") return check_pairs(value, result, true, tensors);
    if (tag == "namedtuple" || tag == "object")
      return value->kind == JsonKind::string && check_pairs(json_.get(tree, "fields"), result, false, tensors);
    if (tag == "none") return value->kind == JsonKind::null;
    if (tag == "const") return is_constant(*value);
    if (value->kind != JsonKind::string) return false;
    if (tag == "real") return value->text == "inf" || value->text == "-inf" || value->text == "nan";
    if (tag == "scalar")
      return result && (value->text == "int" || value->text == "float" || value->text == "bool") && ++*tensors;
    return true;
  }

  // The form of (args, kwargs).
  bool check_arguments(const JsonValue *tree, int64_t *tensors) const {
    Span tag;
    const JsonValue *both = tagged(tree, &tag);
    if (!both || tag != "tuple" || both->kind != JsonKind::array || both->count != 2) return false;
    const JsonValue *args = json_.first(both), *kwargs = json_.next(args);
    const JsonValue *positional = tagged(args, &tag);
    if (!positional || tag != "tuple" || !has_names(json_.get(args, "names"), *positional)) return false;
    const JsonValue *keywords = tagged(kwargs, &tag);
    if (!keywords || tag != "dict" || keywords->kind != JsonKind::array) return false;
    for (const JsonValue *pair = json_.first(keywords); pair; pair = json_.next(pair))
      if (pair->kind != JsonKind::array || !pair->count || json_.first(pair)->kind != JsonKind::string) return false;
    return check(tree, false, tensors);
  }

 private:
  // The value under the one tag of a tree; NULL when it has none, or two.
  const JsonValue *tagged(const JsonValue *tree, Span *tag) const {
    if (tree->kind != JsonKind::object) return nullptr;
    const JsonValue *found = nullptr;
    for (const JsonValue *child = json_.first(tree); child; child = json_.next(child)) {
      for (const char *known : kTags) {
        if (child->key != known) continue;
        if (found) return nullptr;
        found = child;
      }
    }
    if (found) *tag = found->key;
    return found;
  }

  bool check_list(const JsonValue *rows, bool result, int64_t *tensors) const {
    if (rows->kind != JsonKind::array) return false;
    for (const JsonValue *row = json_.first(rows); row; row = json_.next(row))
      if (!check(row, result, tensors)) return false;
    return true;
  }

  // [[key, TREE], ...]; the keys of dicts may be numbers too.
  bool check_pairs(const JsonValue *rows, bool result, bool dict, int64_t *tensors) const {
    if (!rows || rows->kind != JsonKind::array) return false;
    for (const JsonValue *row = json_.first(rows); row; row = json_.next(row)) {
      if (row->kind != JsonKind::array || row->count != 2) return false;
      const JsonValue *key = json_.first(row);
      const bool number = key->kind == JsonKind::integer || key->kind == JsonKind::boolean;
      if (key->kind != JsonKind::string && !(dict && number)) return false;
      if (!check(json_.next(key), result, tensors)) return false;
    }
    return true;
  }

  bool has_names(const JsonValue *names, const JsonValue &positional) const {
    if (!names) return true;
    if (names->kind != JsonKind::array || (names->count && names->count != positional.count)) return false;
    for (const JsonValue *name = json_.first(names); name; name = json_.next(name))
      if (name->kind != JsonKind::string) return false;
    return true;
  }

  static bool is_constant(const JsonValue &value) {
    return value.kind == JsonKind::boolean || value.kind == JsonKind::integer || value.kind == JsonKind::real ||
           value.kind == JsonKind::string;
  }

  const Json &json_;
};

// ---- the walk over the tables

// Where a value lies, from the inside out.
struct Place {
  const Place *outer;
  Span key;       // of a record or map
  int64_t index;  // of a list; -1: none
};

class Checker {
 public:
  Checker(const Json &json, Line *problem) : json_(json), trees_(json), problem_(*problem) {}

  bool check(const JsonValue &value, const Type &type, const Place *place) {
    switch (type.kind) {
      case Kind::list:
        return check_list(value, type, place);
      case Kind::map:
        if (value.kind != JsonKind::object) return wrong(place, "is not an object");
        for (const JsonValue *child = json_.first(&value); child; child = json_.next(child)) {
          const Place inner{place, child->key, -1};
          if (!check(*child, *type.of, &inner)) return false;
        }
        return true;
      case Kind::record:
        return check_record(value, type, place);
      default:
        return fits(value, type.kind) || wrong(place, "is not what it has to be");
    }
  }

  // The structures of an entry point name each of its tensors once.
  bool check_structures(const JsonValue &entry, const Place *place) {
    int64_t inputs = 0, outputs = 0;
    if (!trees_.check_arguments(json_.get(&entry, "in_tree"), &inputs) ||
        inputs != json_.get(&entry, "inputs")->count)
      return wrong(place, "has an in_tree that does not fit its inputs");
    if (!trees_.check(json_.get(&entry, "out_tree"), true, &outputs) ||
        outputs != json_.get(&entry, "outputs")->count)
      return wrong(place, "has an out_tree that does not fit its outputs");
    return true;
  }

 private:
  bool check_list(const JsonValue &value, const Type &type, const Place *place) {
    if (value.kind != JsonKind::array) return wrong(place, "is not a list");
    if (value.count < type.least) return wrong(place, "has too few elements");
    if (value.count > type.most) return wrong(place, "has too many elements");
    Place inner{place, {}, 0};
    for (const JsonValue *child = json_.first(&value); child; child = json_.next(child), ++inner.index)
      if (!check(*child, *type.of, &inner)) return false;
    return true;
  }

  bool check_record(const JsonValue &value, const Type &type, const Place *place) {
    if (value.kind != JsonKind::object) return wrong(place, "is not an object");
    for (uint32_t i = 0; i < type.count; ++i) {
      const Field &field = type.fields[i];
      const Place inner{place, {field.key, strlen(field.key)}, -1};
      const JsonValue *child = json_.get(&value, field.key);
      if (!child && field.needed) return wrong(&inner, "is missing");
      if (child && !check(*child, *field.type, &inner)) return false;
    }
    return true;
  }

  static bool is_number(const JsonValue &value) {
    return value.kind == JsonKind::integer || value.kind == JsonKind::real;
  }

  bool fits(const JsonValue &value, Kind kind) const {
    const bool whole = value.kind == JsonKind::integer, text = value.kind == JsonKind::string;
    switch (kind) {
      case Kind::text:
        return text;
      case Kind::name:
        return text && value.text.size > 0;
      case Kind::dtype:
        return text && dtype_by_name(value.text);
      case Kind::version:
        return text && is_version(value.text);
      case Kind::whole:
        return whole;
      case Kind::natural:
        return whole && value.integer >= 0;
      case Kind::size:
        return value.kind == JsonKind::null || (whole && value.integer >= 0);
      case Kind::number:
        return is_number(value);
      case Kind::flag:
        return value.kind == JsonKind::boolean;
      case Kind::scalar:
        return value.kind != JsonKind::array && value.kind != JsonKind::object;
      case Kind::setting:  // a number, or one for each of several groups
        if (value.kind != JsonKind::array) return is_number(value);
        for (const JsonValue *child = json_.first(&value); child; child = json_.next(child))
          if (!is_number(*child)) return false;
        return true;
      case Kind::dimension:
        return (whole && value.integer >= 0) || (text && value.text.size > 0);
      case Kind::formula:
        return whole || (text && value.text.size > 0);
      case Kind::tree:  // check_structures() looks at it with the ports
        return text || value.kind == JsonKind::object;
      default:
        return true;
    }
  }

  // "", "2.17"
  static bool is_version(Span text) {
    bool digits = false;
    for (size_t i = 0; i < text.size; ++i) {
      const bool digit = text.data[i] >= '0' && text.data[i] <= '9';
      if (!digit && (text.data[i] != '.' || !digits)) return false;
      digits = digit;
    }
    return digits || text.size == 0;
  }

  bool wrong(const Place *place, const char *what) {
    write(place);
    problem_.add("%s%s", problem_.empty() ? "it " : " ", what);
    return false;
  }

  void write(const Place *place) {
    if (!place) return;
    write(place->outer);
    if (place->index >= 0)
      problem_.add("[%lld]", static_cast<long long>(place->index));
    else
      problem_.add("%s%.*s", problem_.empty() ? "" : ".", int(place->key.size < 64 ? place->key.size : 64),
                   place->key.size ? place->key.data : "");
  }

  const Json &json_;
  const Trees trees_;
  Line &problem_;
};

}  // namespace

bool check_form(const Json &json, Line *problem) {
  Checker checker(json, problem);
  if (!checker.check(json.root(), kManifest, nullptr)) return false;
  const Place entries{nullptr, {"entry_points", strlen("entry_points")}, -1};
  Place entry{&entries, {}, 0};
  const JsonValue *rows = json.get(&json.root(), "entry_points");
  for (const JsonValue *row = json.first(rows); row; row = json.next(row), ++entry.index)
    if (!checker.check_structures(*row, &entry)) return false;
  return true;
}

}  // namespace mycc::runtime
