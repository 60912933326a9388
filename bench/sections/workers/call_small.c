/* call_small PACKAGE: prints the microseconds of a call with a small tensor, the median of some rounds. */
#include <mycc/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kCalls = 2000, kRounds = 25 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + 1e-3 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static mycc_tensor dense(float *data, int64_t width) {
  mycc_tensor tensor = {.data = data, .device_type = 1, .ndim = 2, .dtype = {2, 32, 1}};
  tensor.shape[0] = 1;
  tensor.shape[1] = width;
  tensor.strides[0] = width;
  tensor.strides[1] = 1;
  return tensor;
}

int main(int argc, char **argv) {
  mycc_model *model;
  if (argc < 2 || mycc_load_file(argv[1], NULL, &model) != MYCC_OK) {
    fprintf(stderr, "%s\n", argc < 2 ? "usage: call_small PACKAGE" : mycc_last_error());
    return 1;
  }
  float x[8] = {1, 1, 1, 1, 1, 1, 1, 1}, y[8] = {0};
  mycc_tensor in = dense(x, 8), out = dense(y, 8);
  double rounds[kRounds];
  for (int r = 0; r < kRounds; ++r) {
    double start = now();
    for (int i = 0; i < kCalls; ++i) {
      if (mycc_run(model, 0, &in, 1, &out, 1) != MYCC_OK) {
        fprintf(stderr, "%s\n", mycc_last_error());
        return 1;
      }
    }
    rounds[r] = (now() - start) / kCalls;
  }
  qsort(rounds, kRounds, sizeof *rounds, by_value);
  printf("%.4f\n", rounds[kRounds / 2]);
  mycc_unload(model);
  return 0;
}
