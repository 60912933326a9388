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

/* Writes the best round's seconds to *result. The chains are separate variables of a loop that the compiler unrolls. */
static void *work(void *result) {
  double best = 1e9;
  vec sum[kChains], a = (vec){} + 0.999999f, b = (vec){} + 1e-6f;
  for (int c = 0; c < kChains; ++c) sum[c] = (vec){} + (float)c;
  for (int round = 0; round < kRounds; ++round) {
    double start = now();
    for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
      for (int c = 0; c < kChains; ++c) sum[c] = sum[c] * a + b;
      __asm__ volatile("" ::: "memory");
    }
    double spent = now() - start;
    if (spent < best) best = spent;
  }
  float total = 0;
  for (int c = 0; c < kChains; ++c)
    for (int i = 0; i < kLanes; ++i) total += sum[c][i];
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
