/* fma_roof THREADS: prints the GFLOP/s of independent fused multiply-adds in registers, of all threads together. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined(__AVX512F__)
enum { kLanes = 16 };
#elif defined(__AVX__)
enum { kLanes = 8 };
#else
enum { kLanes = 4 };
#endif
enum { kChains = 12, kSteps = 1 << 20, kRounds = 24 };

typedef float vec __attribute__((vector_size(kLanes * sizeof(float))));

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static volatile float sink;

/* Writes the best round's seconds to *result. Each chain is a variable: an array would go through memory. */
static void *work(void *result) {
  double best = 1e9;
  const vec a = (vec){} + 0.999999f, b = (vec){} + 1e-6f;
  vec c0 = b, c1 = c0 + 1, c2 = c0 + 2, c3 = c0 + 3, c4 = c0 + 4, c5 = c0 + 5;
  vec c6 = c0 + 6, c7 = c0 + 7, c8 = c0 + 8, c9 = c0 + 9, c10 = c0 + 10, c11 = c0 + 11;
  for (int round = 0; round < kRounds; ++round) {
    double start = now();
    for (int step = 0; step < kSteps; ++step) {
      c0 = c0 * a + b, c1 = c1 * a + b, c2 = c2 * a + b, c3 = c3 * a + b, c4 = c4 * a + b, c5 = c5 * a + b;
      c6 = c6 * a + b, c7 = c7 * a + b, c8 = c8 * a + b, c9 = c9 * a + b, c10 = c10 * a + b, c11 = c11 * a + b;
    }
    double spent = now() - start;
    if (spent < best) best = spent;
  }
  vec all = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11;
  float total = 0;
  for (int i = 0; i < kLanes; ++i) total += all[i];
  sink = total;
  *(double *)result = best;
  return NULL;
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 1;
  if (threads < 1 || threads > 1024) return 2;
  pthread_t *ids = calloc((size_t)threads, sizeof *ids);
  double *seconds = calloc((size_t)threads, sizeof *seconds);
  if (!ids || !seconds) return 1;
  for (int i = 0; i < threads; ++i)
    if (pthread_create(&ids[i], NULL, work, &seconds[i])) return 1;
  double total = 0;
  for (int i = 0; i < threads; ++i) {
    pthread_join(ids[i], NULL);
    total += 2.0 * kLanes * kChains * kSteps / seconds[i] / 1e9;
  }
  printf("%.2f\n", total);
  free(ids);
  free(seconds);
  return 0;
}
