/* train.c: trains by the C API alone. train PACKAGE STATE: four steps, a file of the state after two of them, which the
 * last two are repeated from; prints every loss, and that of an evaluation, as hexadecimal floats. */
#include "mycc/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRows = 16, kColumns = 12, kInputs = 16 };

static const struct {
  const char *name;
  double value;
} kNumbers[] = {{"lr", 3e-3},  {"beta1", 0.9},         {"beta2", 0.99},
                {"eps", 1e-8}, {"weight_decay", 0.05}, {"clip_norm", 1.0}};

static void check(int status) {
  if (status == MYCC_OK) return;
  fprintf(stderr, "%s\n", mycc_last_error());
  exit(1);
}

static mycc_tensor tensor(void *data, mycc_dtype dtype, int32_t ndim, int64_t rows, int64_t columns) {
  mycc_tensor t = {0};
  t.data = data, t.device_type = 1, t.ndim = ndim, t.dtype = dtype;
  t.shape[0] = rows, t.shape[1] = columns;
  t.strides[0] = ndim > 1 ? columns : 1, t.strides[1] = 1;
  return t;
}

/* Batch `number`, and the numbers of the optimizer where the entry point takes them. Returns the loss. */
static float run(mycc_model *model, const char *name, int number) {
  static float x[kRows * kColumns];
  static int64_t labels[kRows];
  static double numbers[kInputs][2];
  for (int i = 0; i < kRows * kColumns; ++i) x[i] = (float)((i * 37 + number * 11) % 101) / 50 - 1;
  for (int i = 0; i < kRows; ++i) labels[i] = (i + number) % 4;
  const int32_t entry = mycc_entry_find(model, name), count = mycc_input_count(model, entry);
  mycc_tensor inputs[kInputs], outputs[2];
  memset(outputs, 0, sizeof outputs);
  for (int32_t i = 0; i < count; ++i) {
    const mycc_port *port = mycc_input(model, entry, i);
    if (strcmp(port->name, "x") == 0) {
      inputs[i] = tensor(x, port->dtype, 2, kRows, kColumns);
    } else if (strcmp(port->name, "target") == 0) {
      inputs[i] = tensor(labels, port->dtype, 1, kRows, 0);
    } else {
      size_t n = 0;
      while (n < sizeof kNumbers / sizeof *kNumbers && strcmp(kNumbers[n].name, port->name) != 0) ++n;
      if (n == sizeof kNumbers / sizeof *kNumbers) fprintf(stderr, "no value for %s\n", port->name), exit(1);
      numbers[i][0] = numbers[i][1] = kNumbers[n].value;
      inputs[i] = tensor(numbers[i], port->dtype, port->ndim, 2, 0);
    }
  }
  const int32_t results = mycc_output_count(model, entry);
  check(mycc_run(model, entry, inputs, count, outputs, results));
  const float loss = *(const float *)outputs[0].data;
  for (int32_t i = 0; i < results; ++i) mycc_tensor_free(&outputs[i]);
  return loss;
}

static size_t bytes_of(const mycc_tensor *t) {
  size_t bytes = t->dtype.bits / 8;
  for (int32_t d = 0; d < t->ndim; ++d) bytes *= (size_t)t->shape[d];
  return bytes;
}

static void save(mycc_model *model, const char *path) {
  FILE *file = fopen(path, "wb");
  for (int32_t i = 0; i < mycc_state_count(model); ++i) {
    mycc_tensor copy = {0};
    check(mycc_state_read(model, NULL, i, &copy));
    if (fwrite(copy.data, 1, bytes_of(&copy), file) != bytes_of(&copy)) exit(1);
    mycc_tensor_free(&copy);
  }
  fclose(file);
}

static void load(mycc_model *model, const char *path) {
  FILE *file = fopen(path, "rb");
  for (int32_t i = 0; i < mycc_state_count(model); ++i) {
    mycc_tensor value = {0};
    check(mycc_state_read(model, NULL, i, &value));
    if (fread(value.data, 1, bytes_of(&value), file) != bytes_of(&value)) exit(1);
    check(mycc_state_write(model, NULL, i, &value));
    mycc_tensor_free(&value);
  }
  fclose(file);
}

int main(int argc, char **argv) {
  mycc_model *model;
  if (argc != 3) return 2;
  check(mycc_load_file(argv[1], NULL, &model));
  for (int i = 0; i < 4; ++i) {
    if (i == 2) save(model, argv[2]);
    printf("%a\n", (double)run(model, "step", i));
  }
  check(mycc_state_reset(model, NULL));
  load(model, argv[2]);
  for (int i = 2; i < 4; ++i) printf("%a\n", (double)run(model, "step", i));
  printf("%a\n", (double)run(model, "evaluate", 4));
  mycc_unload(model);
  return 0;
}
