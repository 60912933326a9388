// stress.cpp: many callers on the pool at once; built with the thread sanitizer.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "src/cpu/pool.h"

using mycc::runtime::CallInFlight;

namespace {

constexpr int kCallers = 6, kCalls = 60, kLoops = 20, kSize = 257;

struct Loop {
  int visits[kSize];
  int workers[16];
};

void body(void *argument, int64_t begin, int64_t end, int32_t worker) {
  Loop *loop = static_cast<Loop *>(argument);
  loop->workers[worker] += 1;  // a data race unless the worker is alone with its number
  for (int64_t i = begin; i < end; ++i) loop->visits[i] += 1;
}

void *caller(void *argument) {
  long failures = 0;
  for (int call = 0; call < kCalls; ++call) {
    CallInFlight flight(2 + call % 6);
    for (int i = 0; i < kLoops; ++i) {
      Loop loop = {};
      flight.parallel_for(kSize, 1 + i % 9, body, &loop);
      for (int visits : loop.visits) failures += visits != 1;
    }
    if (call % 20 == 0) usleep(2000);  // lets the workers fall asleep
  }
  (void)argument;
  return reinterpret_cast<void *>(failures);
}

}  // namespace

int main() {
  mycc::runtime::available_threads();
  pthread_t threads[kCallers];
  long failures = 0;
  for (int alone = 0; alone < 2; ++alone) {
    int count = alone ? 1 : kCallers;
    for (int i = 0; i < count; ++i) pthread_create(&threads[i], nullptr, caller, nullptr);
    for (int i = 0; i < count; ++i) {
      void *result;
      pthread_join(threads[i], &result);
      failures += reinterpret_cast<long>(result);
    }
  }
  printf("%ld wrong\n", failures);
  return failures != 0;
}
