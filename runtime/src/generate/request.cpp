#include "request.h"

#include <time.h>

#include "../base/errors.h"

namespace mycc::runtime {
namespace {

int check_tokens(const char *what, const int64_t *tokens, int64_t count, int64_t vocabulary) {
  if (count < 0 || (count > 0 && !tokens)) return fail(MYCC_ERROR_INPUT, "%s: %lld of them at NULL", what, (long long)count);
  for (int64_t i = 0; i < count; ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      return fail(MYCC_ERROR_INPUT, "%s: %lld is no token; they are numbered from 0 to %lld", what, (long long)tokens[i],
                  (long long)vocabulary - 1);
  return MYCC_OK;
}

int check_number(const char *what, double value, double least, double most) {
  if (value >= least && value <= most) return MYCC_OK;
  return fail(MYCC_ERROR_INPUT, "%s is %g; it has to be from %g to %g", what, value, least, most);
}

// Another number each time.
uint64_t any_seed(int64_t id) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec) + uint64_t(id) * 0x9e3779b97f4a7c15u;
}

int check_sampling(const mycc_sampling &sampling, int64_t vocabulary) {
  if (sampling.struct_size == 0) return MYCC_OK;
  if (sampling.struct_size != sizeof(mycc_sampling))
    return fail(MYCC_ERROR_INPUT, "struct_size has to be sizeof(mycc_sampling) or 0");
  const double most = 1.7976931348623157e308;
  const struct {
    const char *name;
    double value, least, most;
  } rows[] = {
      {"temperature", sampling.temperature, 0, most},
      {"top_k", double(sampling.top_k), 0, most},
      {"top_p", sampling.top_p, 0, 1},
      {"min_p", sampling.min_p, 0, 1},
      {"repetition_penalty", sampling.repetition_penalty, 0, most},
      {"presence_penalty", sampling.presence_penalty, -most, most},
      {"frequency_penalty", sampling.frequency_penalty, -most, most},
  };
  for (const auto &row : rows)
    if (int status = check_number(row.name, row.value, row.least, row.most)) return status;
  if (sampling.n_bias > 0 && !sampling.bias) return fail(MYCC_ERROR_INPUT, "bias is NULL");
  return check_tokens("bias_tokens", sampling.bias_tokens, sampling.n_bias, vocabulary);
}

}  // namespace

int check_request(const mycc_request &request, int64_t length, int64_t vocabulary) {
  if (request.struct_size != sizeof(mycc_request))
    return fail(MYCC_ERROR_INPUT, "struct_size has to be sizeof(mycc_request)");
  if (request.prompt_length < 1)
    return fail(MYCC_ERROR_INPUT, "the prompt is empty, and the model has no token to begin with");
  if (request.prompt_length >= length)
    return fail(MYCC_ERROR_INPUT,
                "the prompt has %lld tokens; the package holds %lld, prompt and answer together\n"
                "  Shorten it, or compile with a larger --max-length.",
                (long long)request.prompt_length, (long long)length);
  if (request.max_new_tokens < 0) return fail(MYCC_ERROR_INPUT, "max_new_tokens is below 0");
  if (int status = check_tokens("prompt", request.prompt, request.prompt_length, vocabulary)) return status;
  if (int status = check_tokens("stop_tokens", request.stop_tokens, request.n_stop_tokens, vocabulary)) return status;
  return check_sampling(request.sampling, vocabulary);
}

Request *make_request(const mycc_request &given, int64_t id) {
  Request *request = make_value<Request>();
  if (!request) return nullptr;
  request->id = id, request->priority = given.priority, request->prompt = given.prompt_length;
  request->most = given.max_new_tokens, request->by_caller = given.chosen_by_caller != 0;
  bool room = true;
  for (int64_t i = 0; i < given.prompt_length; ++i) room = room && request->tokens.push(given.prompt[i]);
  for (int64_t i = 0; i < given.n_stop_tokens; ++i) room = room && request->stops.push(given.stop_tokens[i]);
  const uint64_t seed = given.sampling.has_seed ? given.sampling.seed : any_seed(id);
  if (room && request->sampler.init(given.sampling, seed, given.prompt, given.prompt_length)) return request;
  free_value(request);
  return nullptr;
}

}  // namespace mycc::runtime
