// lock.h: a lock for short sections.
#pragma once

#include <pthread.h>

namespace mycc::runtime {

class Lock {
 public:
  void acquire() { pthread_mutex_lock(&mutex_); }
  void release() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

class Locked {
 public:
  explicit Locked(Lock &lock) : lock_(lock) { lock_.acquire(); }
  ~Locked() { lock_.release(); }
  Locked(const Locked &) = delete;
  Locked &operator=(const Locked &) = delete;

 private:
  Lock &lock_;
};

}  // namespace mycc::runtime
