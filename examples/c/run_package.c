/* run_package.c: load a package, run it on inputs filled with a pattern, print what comes out.
 *
 *   run_package model.pkg [entry] [size=value ...]
 */
#include <mycc/model.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMaxTensors = 64, kMaxSymbols = 16, kCpu = 1, kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4 };

typedef struct {
  const char *names[kMaxSymbols];
  int64_t values[kMaxSymbols];
  int count;
} Sizes;

static void die(const char *what) {
  fprintf(stderr, "error: %s\n", what);
  exit(2);
}

static void check(int status) {
  if (status != MYCC_OK) die(mycc_last_error());
}

/* The sizes of the entry point's symbols: the smallest ones, or what "name=value" arguments say. */
static Sizes read_sizes(const mycc_model *model, int32_t entry, int argc, char **argv) {
  Sizes sizes = {.count = mycc_symbol_count(model, entry)};
  if (sizes.count > kMaxSymbols) die("too many dynamic sizes for this example");
  for (int i = 0; i < sizes.count; ++i) {
    const mycc_symbol *symbol = mycc_symbol_at(model, entry, i);
    size_t length = strlen(symbol->name);
    sizes.names[i] = symbol->name;
    sizes.values[i] = symbol->min;
    for (int a = 2; a < argc; ++a)
      if (strncmp(argv[a], symbol->name, length) == 0 && argv[a][length] == '=')
        sizes.values[i] = strtoll(argv[a] + length + 1, NULL, 10);
  }
  return sizes;
}

/* ---- a dimension as text, "2*(seq + 1)", to its value */

static int64_t parse_sum(const char **text, const Sizes *sizes);

static void skip_space(const char **text) {
  while (**text == ' ') ++*text;
}

static int64_t parse_factor(const char **text, const Sizes *sizes) {
  skip_space(text);
  if (**text == '(') {
    ++*text;
    int64_t value = parse_sum(text, sizes);
    skip_space(text);
    ++*text; /* ")" */
    return value;
  }
  if (**text == '-') {
    ++*text;
    return -parse_factor(text, sizes);
  }
  if (**text >= '0' && **text <= '9') {
    char *end;
    int64_t value = strtoll(*text, &end, 10);
    *text = end;
    return value;
  }
  size_t length = strcspn(*text, " +-*/()");
  for (int i = 0; i < sizes->count; ++i) {
    if (strlen(sizes->names[i]) != length || strncmp(*text, sizes->names[i], length) != 0) continue;
    *text += length;
    return sizes->values[i];
  }
  die("a dimension has an unknown size");
  return 0;
}

static int64_t parse_product(const char **text, const Sizes *sizes) {
  int64_t value = parse_factor(text, sizes);
  for (;;) {
    skip_space(text);
    if (**text == '*') {
      ++*text;
      value *= parse_factor(text, sizes);
    } else if (strncmp(*text, "//", 2) == 0) { /* of values that are not negative */
      *text += 2;
      value /= parse_factor(text, sizes);
    } else {
      return value;
    }
  }
}

static int64_t parse_sum(const char **text, const Sizes *sizes) {
  int64_t value = parse_product(text, sizes);
  for (;;) {
    skip_space(text);
    if (**text == '+') {
      ++*text;
      value += parse_product(text, sizes);
    } else if (**text == '-') {
      ++*text;
      value -= parse_product(text, sizes);
    } else {
      return value;
    }
  }
}

/* ---- tensors */

static int64_t count_elements(const mycc_tensor *tensor) {
  int64_t count = 1;
  for (int32_t d = 0; d < tensor->ndim; ++d) count *= tensor->shape[d];
  return count;
}

/* Small numbers: 0, 1, 2, 3 for integers; 0.0, 0.1, ... 0.9 for floats. 16-bit floats stay zero. */
static void fill(mycc_tensor *tensor) {
  int64_t count = count_elements(tensor);
  for (int64_t i = 0; i < count; ++i) {
    if (tensor->dtype.code == kFloat && tensor->dtype.bits == 32) ((float *)tensor->data)[i] = (float)(i % 10) / 10;
    if (tensor->dtype.code == kFloat && tensor->dtype.bits == 64) ((double *)tensor->data)[i] = (double)(i % 10) / 10;
    if (tensor->dtype.code == kFloat || tensor->dtype.code == kBfloat) continue;
    if (tensor->dtype.bits == 8) ((uint8_t *)tensor->data)[i] = (uint8_t)(i % 2);
    if (tensor->dtype.bits == 32) ((int32_t *)tensor->data)[i] = (int32_t)(i % 4);
    if (tensor->dtype.bits == 64) ((int64_t *)tensor->data)[i] = i % 4;
  }
}

static mycc_tensor make_input(const mycc_port *port, const Sizes *sizes) {
  mycc_tensor tensor = {.device_type = kCpu, .ndim = port->ndim, .dtype = port->dtype};
  int64_t stride = 1;
  for (int32_t d = port->ndim; d-- > 0;) {
    const char *text = port->dims[d];
    tensor.shape[d] = parse_sum(&text, sizes);
    tensor.strides[d] = stride;
    stride *= tensor.shape[d];
  }
  tensor.data = calloc((size_t)stride + 1, port->dtype.bits / 8);
  if (!tensor.data) die("out of memory");
  fill(&tensor);
  return tensor;
}

static void print_tensor(const char *name, const mycc_tensor *tensor) {
  printf("%s [", name);
  for (int32_t d = 0; d < tensor->ndim; ++d) printf("%s%" PRId64, d ? ", " : "", tensor->shape[d]);
  printf("]");
  int64_t count = count_elements(tensor);
  for (int64_t i = 0; i < count && i < 5; ++i) {
    if (tensor->dtype.code == kFloat && tensor->dtype.bits == 32) printf(" %g", (double)((float *)tensor->data)[i]);
    if (tensor->dtype.code == kFloat && tensor->dtype.bits == 64) printf(" %g", ((double *)tensor->data)[i]);
    if (tensor->dtype.code == kInt && tensor->dtype.bits == 64) printf(" %" PRId64, ((int64_t *)tensor->data)[i]);
    if (tensor->dtype.code == kInt && tensor->dtype.bits == 32) printf(" %" PRId32, ((int32_t *)tensor->data)[i]);
    if (tensor->dtype.bits == 8) printf(" %d", ((uint8_t *)tensor->data)[i]);
  }
  printf(count > 5 ? " ...\n" : "\n");
}

int main(int argc, char **argv) {
  if (argc < 2) die("usage: run_package model.pkg [entry] [size=value ...]");
  mycc_model *model;
  check(mycc_load_file(argv[1], NULL, &model));
  int32_t entry = 0;
  if (argc > 2 && !strchr(argv[2], '=')) entry = mycc_entry_find(model, argv[2]);
  if (entry < 0) die("the package has no such entry point");
  printf("%s on %s, %d threads, mycc %s\n", mycc_entry_name(model, entry), mycc_model_target(model),
         (int)mycc_model_threads(model), mycc_version());

  Sizes sizes = read_sizes(model, entry, argc, argv);
  int32_t n_inputs = mycc_input_count(model, entry), n_outputs = mycc_output_count(model, entry);
  if (n_inputs > kMaxTensors || n_outputs > kMaxTensors) die("too many tensors for this example");
  mycc_tensor inputs[kMaxTensors], outputs[kMaxTensors];
  memset(outputs, 0, sizeof outputs); /* data NULL: the runtime allocates */
  for (int32_t i = 0; i < n_inputs; ++i) inputs[i] = make_input(mycc_input(model, entry, i), &sizes);

  check(mycc_run(model, entry, inputs, n_inputs, outputs, n_outputs));

  for (int32_t i = 0; i < n_outputs; ++i) {
    print_tensor(mycc_output(model, entry, i)->name, &outputs[i]);
    mycc_tensor_free(&outputs[i]);
  }
  for (int32_t i = 0; i < n_inputs; ++i) free(inputs[i].data);
  mycc_unload(model);
  return 0;
}
