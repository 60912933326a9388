// api.cpp: the functions of mycc/generate.h.

#include <stddef.h>
#include <string.h>

#include "../base/errors.h"
#include "../base/lock.h"
#include "scheduler.h"

using namespace mycc::runtime;

struct mycc_generator {
  Lock lock;
  Scheduler scheduler;
};

namespace {

int missing(const char *what) { return fail(MYCC_ERROR_INPUT, "%s is NULL", what); }

}  // namespace

extern "C" {

int mycc_generator_new(mycc_model *model, const mycc_generator_options *options, mycc_generator **generator) {
  if (!generator) return missing("the place for the generator");
  *generator = nullptr;
  if (!model) return missing("the model");
  if (options && options->struct_size != sizeof(mycc_generator_options))
    return fail(MYCC_ERROR_INPUT, "struct_size has to be sizeof(mycc_generator_options)");
  mycc_generator *made = make_value<mycc_generator>();
  if (!made) return out_of_memory(sizeof(mycc_generator));
  if (int status = made->scheduler.init(model, options && options->forget)) {
    free_value(made);
    return status;
  }
  *generator = made;
  return MYCC_OK;
}

void mycc_generator_free(mycc_generator *generator) { free_value(generator); }

int mycc_generator_submit(mycc_generator *generator, const mycc_request *request, int64_t *id) {
  if (!generator || !request || !id) return missing(!generator ? "the generator" : !request ? "the request" : "id");
  const Locked locked(generator->lock);
  return generator->scheduler.submit(*request, id);
}

int mycc_generator_check(mycc_generator *generator, const mycc_request *request) {
  if (!generator || !request) return missing(!generator ? "the generator" : "the request");
  return generator->scheduler.check(*request);
}

int mycc_generator_cancel(mycc_generator *generator, int64_t id) {
  if (!generator) return missing("the generator");
  const Locked locked(generator->lock);
  return generator->scheduler.cancel(id);
}

int mycc_generator_show_logits(mycc_generator *generator, int64_t id, int32_t shown) {
  if (!generator) return missing("the generator");
  const Locked locked(generator->lock);
  return generator->scheduler.show_logits(id, shown != 0);
}

int mycc_generator_choose(mycc_generator *generator, int64_t id, int64_t token, int32_t finish, int32_t *ended) {
  if (!generator) return missing("the generator");
  const Locked locked(generator->lock);
  return generator->scheduler.choose(id, token, finish, ended);
}

int mycc_generator_step(mycc_generator *generator, const mycc_token **tokens, int32_t *count) {
  if (!generator || !tokens || !count) return missing(!generator ? "the generator" : "the place for tokens");
  const Locked locked(generator->lock);
  const int status = generator->scheduler.step();
  *tokens = generator->scheduler.found().begin();
  *count = int32_t(generator->scheduler.found().size());
  return status;
}

int32_t mycc_generator_busy(mycc_generator *generator) {
  if (!generator) return 0;
  const Locked locked(generator->lock);
  return generator->scheduler.busy();
}

int mycc_generator_count(mycc_generator *generator, mycc_generator_counts *counts) {
  if (!generator || !counts) return missing(!generator ? "the generator" : "counts");
  if (counts->struct_size != sizeof(mycc_generator_counts) && counts->struct_size != offsetof(mycc_generator_counts, calls))
    return fail(MYCC_ERROR_INPUT, "struct_size has to be sizeof(mycc_generator_counts)");
  const Locked locked(generator->lock);
  mycc_generator_counts found = {};
  found.struct_size = counts->struct_size;
  generator->scheduler.count(&found);
  memcpy(counts, &found, counts->struct_size);
  return MYCC_OK;
}

}  // extern "C"
